"""The files of a run record, and atomic writes."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Iterator, Mapping
from io import FileIO
from pathlib import Path
from typing import Any, BinaryIO

from spyker.errors import RecordError
from spyker.untrusted_files import LARGEST_TABLE

SCENARIO, FACTS, SUMMARY = "scenario.toml", "facts.jsonl", "summary.json"
LOCK = ".lock"
"""Lock file during a run (:mod:`~spyker.records.lock`); not part of the record."""
BLOCK = 1 << 16  # bytes per read
POSIX = hasattr(os, "fork")  # not Windows; unlike os.name, a test can change it
RENAME_SECONDS, RETRY_SECONDS = 2.0, 0.02


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path that replaces ``path`` atomically at the end of the context."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield temporary
        sync(temporary)
        rename(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_atomically(path: Path, text: str) -> None:
    """Write a file atomically."""
    with replacing(path) as temporary:
        temporary.write_text(text, "utf-8", newline="\n")


def rename(path: Path, target: Path) -> None:
    """Rename a file, over an existing one.

    Windows refuses this while another process, such as a virus scanner, has one of them open: retry for a while.
    """
    deadline = time.monotonic() + RENAME_SECONDS
    while True:
        try:
            path.replace(target)
            return
        except PermissionError:
            if POSIX or time.monotonic() > deadline:
                raise
            time.sleep(RETRY_SECONDS)


def sync(path: Path) -> None:
    """Call fsync on a file or folder. Windows cannot sync a folder, and syncs files only for their writers."""
    if not POSIX and path.is_dir():
        return
    descriptor = os.open(path, os.O_RDONLY if POSIX else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def section(scenario: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a section of a recorded scenario, which another version may have written; empty if there is none."""
    found = scenario.get(name)
    return found if isinstance(found, Mapping) else {}


def is_record(folder: Path) -> bool:
    """Return whether a folder is a run record, finished or not."""
    return (folder / SCENARIO).is_file()


def contents(folder: Path) -> list[Path]:
    """Return the content of a folder without the lock file."""
    return [child for child in folder.iterdir() if child.name != LOCK]


def check_new(folder: Path, *, overwrite: bool) -> None:
    """Raise a ``RecordError`` unless the folder is empty or holds a record that may be overwritten."""
    if folder.exists() and not folder.is_dir():
        raise RecordError(f"{folder} is a file. Choose another --out")
    if not folder.exists() or not contents(folder):
        return
    if not overwrite:
        raise RecordError(f"{folder} exists already. Choose another --out, or add --overwrite to replace it")
    if not is_record(folder) and not any(is_record(child) for child in folder.iterdir()):
        raise RecordError(f"{folder} is not a run record, so --overwrite does not delete it. Choose another --out")


def drop_torn_line(facts: Path) -> None:
    """Truncate a torn last line."""
    with facts.open("r+b") as file:
        torn = next(backwards(file))
        file.truncate(file.seek(0, os.SEEK_END) - len(torn))


def check_line(length: int) -> None:
    """Raise an ``OSError`` if a line of facts is too long, as in a sparse file."""
    if length > LARGEST_TABLE:
        raise OSError(errno.EFBIG, f"A line is longer than {LARGEST_TABLE:,} bytes")


def backwards(file: BinaryIO | FileIO) -> Iterator[bytes]:
    """Yield the lines of a file from the end, reading only as much as needed.

    Raises:
        OSError: the file cannot be read, or a line is too long.

    """
    start, rest = file.seek(0, os.SEEK_END), b""
    while start:
        end, start = start, max(0, start - BLOCK)
        file.seek(start)
        rest, *lines = (file.read(end - start) + rest).split(b"\n")
        yield from reversed(lines)
        check_line(len(rest))
    yield rest
