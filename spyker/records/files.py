"""The files of a run record, and how they are written so that a kill at any moment leaves a record."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from spyker.errors import RecordError

SCENARIO, FACTS, SUMMARY = "scenario.toml", "facts.jsonl", "summary.json"
LOCK = ".lock"
"""Is there while a run is written (:mod:`~spyker.records.lock`), and no part of its record."""
BLOCK = 1 << 16  # bytes of a file that are read at once


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A name to write a file under, such that a kill or an error at any moment leaves the old one or the new one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield temporary
        sync(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_atomically(path: Path, text: str) -> None:
    """Write a file such that a kill at any moment leaves the old one or the new one."""
    with replacing(path) as temporary:
        temporary.write_text(text, "utf-8", newline="\n")


def sync(path: Path) -> None:
    """Force a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_record(folder: Path) -> bool:
    """Whether a folder holds a run, finished or not."""
    return (folder / SCENARIO).is_file()


def contents(folder: Path) -> list[Path]:
    """What stands in a folder, besides the mark of who writes there."""
    return [child for child in folder.iterdir() if child.name != LOCK]


def check_new(folder: Path, *, overwrite: bool) -> None:
    """Refuse to write where something stands already, unless it is our own and may go."""
    if folder.exists() and not folder.is_dir():
        raise RecordError(f"{folder} is a file. Choose another --out")
    if not folder.exists() or not contents(folder):
        return
    if not overwrite:
        raise RecordError(f"{folder} exists already. Choose another --out, or add --overwrite to replace it")
    if not is_record(folder) and not any(is_record(child) for child in folder.iterdir()):
        raise RecordError(f"{folder} is not a run record, so --overwrite leaves it alone. Choose another --out")


def drop_torn_line(facts: Path) -> None:
    """Cut off what a kill left of a last line."""
    with facts.open("r+b") as file:
        torn = next(backwards(file))
        file.truncate(file.seek(0, os.SEEK_END) - len(torn))


def backwards(file: BinaryIO) -> Iterator[bytes]:
    """The lines of a file from the end, of which no more is read than asked for. The first has no newline behind it."""
    start, rest = file.seek(0, os.SEEK_END), b""
    while start:
        end, start = start, max(0, start - BLOCK)
        file.seek(start)
        rest, *lines = (file.read(end - start) + rest).split(b"\n")
        yield from reversed(lines)
    yield rest
