"""What a server can be restarted from: numbers as JSON and vectors as safetensors, one folder per checkpoint.

A checkpoint is written under another name, forced to the disk, and renamed into place: a kill or a power cut at any
moment leaves it whole or not there at all. Its numbers hold checksums of its vectors and of themselves, so that
what a disk did to it later is noticed when it is read, and the one before it is used.
"""

from __future__ import annotations

import fcntl
import json
import logging
import re
import shutil
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from spyker.protocol.forms import Array
from spyker.records import RecordError
from spyker.records.files import sync
from spyker.records.tensors import write_tensors

NUMBERS, VECTORS, LOCK = "numbers.json", "vectors.safetensors", "lock"
FORMAT = 2
NAME = re.compile(r"checkpoint-(\d{6,})")
UNFINISHED, UNWANTED = ".unfinished", ".unwanted"  # what a kill may leave behind, hidden

log = logging.getLogger(__name__)


class CheckpointError(RecordError):
    """A state folder that cannot be used; says which one, why, and what to do."""


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """A checkpoint that was read back."""

    number: int
    numbers: dict[str, Any]
    vectors: dict[str, Array]
    damaged: tuple[str, ...] = ()
    """Later checkpoints that could not be read, and why. What they held beyond this one is lost."""


class Checkpoints:
    """The checkpoints of one server, of which the last ``keep`` are kept. Only one process may use a folder."""

    def __init__(self, folder: Path, keep: int) -> None:
        if keep < 1:
            raise CheckpointError(f"keep is {keep}, and nothing would be left to restart from. Keep at least 1")
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.keep = folder, keep
        self._lock = (folder / LOCK).open("w")
        try:
            fcntl.lockf(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # released when the process ends, however it ends
        except OSError:
            raise CheckpointError(f"{folder} is in use by another process. Stop it, or name another folder") from None
        self._clear_leftovers()

    def save(self, numbers: Mapping[str, Any], vectors: Mapping[str, Array]) -> int:
        """Write a checkpoint and return its number once it would survive a power cut.

        This blocks, for as long as the disk takes, without holding up other threads. A vector that appears under
        several names is written once.
        """
        existing = numbers_in(self.folder)
        number = existing[-1] + 1 if existing else 1
        place = self.folder / name(number)
        unfinished = self.folder / f".{name(number)}{UNFINISHED}"
        if unfinished.exists():  # of a save that failed, for instance because the disk was full
            shutil.rmtree(unfinished)
        unfinished.mkdir()
        write(unfinished, numbers, vectors)
        unfinished.rename(place)
        sync(self.folder)
        for old in [*existing, number][: -self.keep]:
            unwanted = self.folder / f".{name(old)}{UNWANTED}"
            (self.folder / name(old)).rename(unwanted)  # so that no half of it is ever taken for a checkpoint
            shutil.rmtree(unwanted)
        return number

    def latest(self) -> Checkpoint | None:
        """The newest checkpoint that can be read, or nothing if none was ever written."""
        return latest(self.folder)

    def _clear_leftovers(self) -> None:
        """Remove what a killed process left half-done."""
        for path in self.folder.glob(".checkpoint-*"):
            if path.name.endswith((UNFINISHED, UNWANTED)):
                shutil.rmtree(path)


def latest(folder: Path) -> Checkpoint | None:
    """The newest readable checkpoint in a folder, which its server may be writing to at this moment."""
    while True:
        damaged: list[str] = []
        vanished = False
        for number in reversed(numbers_in(folder)):
            path = folder / name(number)
            try:
                return Checkpoint(number, *read(path), tuple(damaged))
            except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
                vanished = not path.exists()
                if vanished:
                    break  # its server removed it because there are newer ones
                problem = f"{path} is damaged: {error}"
                log.warning("%s", problem)
                damaged.append(problem)
        if vanished:
            continue
        if damaged:
            problems = "\n".join(damaged)
            raise CheckpointError(
                f"{problems}\n{folder} holds no checkpoint that can be read. "
                "Restore it from a backup, or remove it to begin anew"
            )
        return None


def name(number: int) -> str:
    """The folder of a checkpoint."""
    return f"checkpoint-{number:06}"


def numbers_in(folder: Path) -> list[int]:
    """The numbers of all checkpoints in a folder, damaged ones included, ascending."""
    if not folder.is_dir():
        return []
    return sorted(int(match[1]) for path in folder.iterdir() if (match := NAME.fullmatch(path.name)))


def write(folder: Path, numbers: Mapping[str, Any], vectors: Mapping[str, Array]) -> None:
    """Write both files and force them to the disk."""
    names: dict[int, str] = {}  # under which name a vector is in the file
    same = {key: names.setdefault(id(vector), key) for key, vector in vectors.items()}
    checksums = write_tensors(folder / VECTORS, {key: vectors[key] for key in names.values()})
    content = json.dumps(
        {"format": FORMAT, "numbers": dict(numbers), "vectors": same, "checksums": checksums}, allow_nan=False
    )
    checksum = zlib.crc32(content.encode())
    (folder / NUMBERS).write_text(f"{content}\n{checksum}\n", encoding="utf-8")
    for path in (folder / VECTORS, folder / NUMBERS, folder):
        sync(path)


def read(folder: Path) -> tuple[dict[str, Any], dict[str, Array]]:
    """Read both files back; whatever is not as it was written is an error."""
    content, checksum, _ = (folder / NUMBERS).read_text(encoding="utf-8").split("\n")
    if zlib.crc32(content.encode()) != int(checksum):
        raise ValueError(f"{NUMBERS} is not as it was written")
    table = json.loads(content)
    if table["format"] != FORMAT:
        raise ValueError(f"{NUMBERS} has format {table['format']}, and this version of Spyker reads {FORMAT}")
    distinct = load_file(folder / VECTORS)
    for key, expected in table["checksums"].items():
        if zlib.crc32(distinct[key].reshape(-1).view(np.uint8).data) != expected:
            raise ValueError(f"{key} in {VECTORS} is not as it was written")
    return table["numbers"], {key: distinct[at] for key, at in table["vectors"].items()}
