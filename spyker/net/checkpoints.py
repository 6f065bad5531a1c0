"""Checkpoints of a server: numbers as JSON and vectors as safetensors, one folder per checkpoint.

Writes are atomic: a checkpoint is written under a temporary name, synced to disk and renamed. Checksums of numbers and
vectors reveal later damage; the previous checkpoint is then used.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
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

from spyker.errors import CheckpointError, NoReadableCheckpointError, StateFolderError
from spyker.protocol.codec import Array
from spyker.records.files import sync
from spyker.records.lock import lock
from spyker.records.tensors import write_tensors
from spyker.untrusted_files import LARGEST_TABLE, check_regular, parse_json, read_bytes

NUMBERS, VECTORS, LOCK, NEWEST = "numbers.json", "vectors.safetensors", "lock", "newest"
FORMAT = 7
PRIVATE = 0o700  # only the owner can read checkpoints
HOUR = 3600
NAME = re.compile(r"checkpoint-(\d{6,})")
UNFINISHED, UNWANTED = ".unfinished", ".unwanted"  # suffixes of folders that a killed process may leave

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """A checkpoint that was read from disk."""

    number: int
    numbers: dict[str, Any]
    vectors: dict[str, Array]
    damaged: tuple[str, ...] = ()
    """Problems of later checkpoints, which could not be read."""


class Checkpoints:
    """The checkpoints of one server. Only one process may use a folder."""

    def __init__(self, folder: Path, keep: int, hourly: int = 0) -> None:
        """Keep the last ``keep`` checkpoints, and the first one of each of ``hourly`` hours before them."""
        if keep < 1:
            raise CheckpointError(f"keep: {keep} is not allowed: at least one checkpoint is needed. Give at least 1")
        self.folder, self.keep, self.hourly = folder, keep, hourly
        try:
            if not folder.exists():
                folder.mkdir(PRIVATE, parents=True)
            os.utime(folder)  # fails on a read-only file system, where an existing lock file can still be opened
            self._lock = lock(folder / LOCK)
        except BlockingIOError:
            raise StateFolderError(
                f"deploy.state: {folder} is in use by another process. Stop it, or give another folder"
            ) from None
        except OSError as error:
            raise unusable(folder, error) from None
        try:
            self._clear_leftovers()
        except OSError as error:
            raise unusable(folder, error) from None

    def save(self, numbers: Mapping[str, Any], vectors: Mapping[str, Array]) -> int:
        """Write a checkpoint, and return its number once it is synced to disk.

        A vector that has several names is written once.
        """
        existing = numbers_in(self.folder)
        number = existing[-1] + 1 if existing else 1
        place = self.folder / name(number)
        unfinished = self.folder / f".{name(number)}{UNFINISHED}"
        if unfinished.exists():  # of a failed save, for instance because the disk was full
            shutil.rmtree(unfinished)
        unfinished.mkdir(PRIVATE)
        write(unfinished, numbers, vectors)
        unfinished.rename(place)
        sync(self.folder)
        self._note(number)
        for old in self._unwanted([*existing, number]):
            unwanted = self.folder / f".{name(old)}{UNWANTED}"
            (self.folder / name(old)).rename(unwanted)  # so that an incomplete folder is never taken for a checkpoint
            shutil.rmtree(unwanted)
        return number

    def close(self) -> None:
        """Release the lock on the folder."""
        self._lock.close()

    def _note(self, number: int) -> None:
        """Note the newest number, so that its loss is noticed. The note need not survive a power cut."""
        temporary = self.folder / f".{NEWEST}"
        with contextlib.suppress(OSError):  # the checkpoint is valid without it
            temporary.write_text(f"{number}\n", "ascii")
            temporary.replace(self.folder / NEWEST)

    def _unwanted(self, existing: list[int]) -> list[int]:
        """Return the numbers of checkpoints that need not be kept."""
        older = existing[: -self.keep]
        hours: dict[int, int] = {}
        for number in older if self.hourly else ():
            hours.setdefault(int((self.folder / name(number)).stat().st_mtime // HOUR), number)
        wanted = set(list(hours.values())[-self.hourly :])
        return [number for number in older if number not in wanted]

    def latest(self) -> Checkpoint | None:
        """Return the newest readable checkpoint, or ``None`` if none was ever written."""
        return latest(self.folder)

    def _clear_leftovers(self) -> None:
        """Remove unfinished folders of a killed process."""
        for path in self.folder.glob(".checkpoint-*"):
            if path.name.endswith((UNFINISHED, UNWANTED)):
                shutil.rmtree(path)


def latest(folder: Path) -> Checkpoint | None:
    """Return the newest readable checkpoint in a folder. Its server may be running."""
    while True:
        damaged = missing(folder)
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
            raise NoReadableCheckpointError(
                f"{problems}\n{folder} holds no readable checkpoint. Restore all of it from a backup. Among other "
                "servers, spyker serve --resume restarts from their state"
            )
        return None


def missing(folder: Path) -> list[str]:
    """Return a complaint if the checkpoint that was noted as the newest is missing."""
    try:
        newest = int(read_bytes(folder / NEWEST, LARGEST_TABLE).decode("ascii"))
    except (OSError, ValueError):
        return []  # none was ever noted, or a power cut took the note
    if max(numbers_in(folder), default=0) >= newest:
        return []
    problem = f"{folder / name(newest)} is missing, and was the newest"
    log.warning("%s", problem)
    return [problem]


def unusable(folder: Path, error: OSError) -> StateFolderError:
    """Return an error for a state folder that cannot be read or written."""
    return StateFolderError(
        f"deploy.state: {folder} cannot be used ({error.strerror}). Give a folder that this user may write to"
    )


def name(number: int) -> str:
    """Return the name of a checkpoint's folder."""
    return f"checkpoint-{number:06}"


def numbers_in(folder: Path) -> list[int]:
    """Return the numbers of all checkpoints in a folder, including damaged ones, in ascending order."""
    if not folder.is_dir():
        return []
    try:
        names = os.listdir(folder)
    except OSError as error:
        raise unusable(folder, error) from None
    return sorted(int(match[1]) for each in names if (match := NAME.fullmatch(each)))


def write(folder: Path, numbers: Mapping[str, Any], vectors: Mapping[str, Array]) -> None:
    """Write both files, and sync them to disk."""
    names: dict[int, str] = {}  # the first name of each vector, by identity
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
    """Read both files, and raise an error if a checksum is wrong."""
    content, checksum, _ = read_bytes(folder / NUMBERS).decode().split("\n")
    if zlib.crc32(content.encode()) != int(checksum):
        raise ValueError(f"{NUMBERS} is not as it was written")
    table = parse_json(content)
    if table["format"] != FORMAT:
        raise ValueError(f"{NUMBERS} has format {table['format']}, and this version of Spyker reads {FORMAT}")
    check_regular(folder / VECTORS)
    distinct = load_file(folder / VECTORS)
    for key, expected in table["checksums"].items():
        if zlib.crc32(distinct[key].reshape(-1).view(np.uint8).data) != expected:
            raise ValueError(f"{key} in {VECTORS} is not as it was written")
    return table["numbers"], {key: distinct[at] for key, at in table["vectors"].items()}
