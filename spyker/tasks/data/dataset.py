"""What is known of a dataset: its files, the arrays made of them, their checksums, and who has them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
Report: TypeAlias = Callable[[str, int, int], None]
"""Told what is being done, how many bytes of it are done, and of how many (0: not known)."""


class SourceError(Exception):
    """One source does not have the data, for this reason. The next one may."""


@dataclass(frozen=True, slots=True)
class RawFile:
    """A file of the dataset as its authors published it, unpacked. ``also`` are other names that it goes by."""

    name: str
    size: int
    sha256: str
    also: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PreparedArray:
    """An array that is made from the files and kept in the cache; the checksum is that of its bytes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    sha256: str

    def check(self, array: Array) -> None:
        """Refuse an array that is not this one to the bit."""
        if array.dtype.str != self.dtype or array.shape != self.shape:
            raise SourceError(
                f"{self.name} is {array.dtype.str} {array.shape}, which ought to be {self.dtype} {self.shape}"
            )
        found = hashlib.sha256(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data).hexdigest()
        if found != self.sha256:
            raise SourceError(f"{self.name} has the wrong checksum: sha256 {found}, expected {self.sha256}")


@dataclass(frozen=True, slots=True)
class Dataset:
    """One dataset.

    ``url`` is the public address of an archive, or of each file if it contains ``{name}``. ``checksums`` are those of
    what is downloaded, by file name, as pooch writes them; that of an archive has no name. What is unpacked is verified
    in any case.
    """

    name: str
    title: str
    files: tuple[RawFile, ...]
    arrays: tuple[PreparedArray, ...]
    parse: Callable[[Mapping[str, bytes]], dict[str, Array]]
    url: str
    checksums: Mapping[str, str] = field(default_factory=dict)
