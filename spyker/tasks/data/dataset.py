"""The description of a dataset: its files, the arrays made from them, their checksums, and the download address."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
Report: TypeAlias = Callable[[str, int, int], None]
"""Progress callback: current action, bytes done, bytes in total (0: unknown)."""


class SourceError(Exception):
    """A source cannot provide the dataset. The loader tries the next source."""


@dataclass(frozen=True, slots=True)
class RawFile:
    """A file of the dataset as published, uncompressed."""

    name: str
    size: int
    sha256: str
    aliases: tuple[str, ...] = ()
    """Other names of the file."""


@dataclass(frozen=True, slots=True)
class PreparedArray:
    """An array made from the files and stored in the cache. ``sha256`` is the checksum of its bytes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    sha256: str

    def check(self, array: Array) -> None:
        """Raise a ``SourceError`` unless type, shape and checksum of the array match."""
        if array.dtype.str != self.dtype or array.shape != self.shape:
            raise SourceError(f"{self.name} is {array.dtype.str} {array.shape}, expected {self.dtype} {self.shape}")
        found = hashlib.sha256(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data).hexdigest()
        if found != self.sha256:
            raise SourceError(f"{self.name} has the wrong checksum: sha256 {found}, expected {self.sha256}")


@dataclass(frozen=True, slots=True)
class Dataset:
    """A dataset.

    ``url`` is the address of an archive, or of each file if it contains ``{name}``. ``checksums`` are the checksums of
    downloads by file name, in pooch's notation; the name of an archive is empty. Unpacked files are always verified.
    """

    name: str
    title: str
    files: tuple[RawFile, ...]
    arrays: tuple[PreparedArray, ...]
    parse: Callable[[Mapping[str, bytes]], dict[str, Array]]
    url: str
    checksums: Mapping[str, str] = field(default_factory=dict)
