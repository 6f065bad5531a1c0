"""One writer per record: whoever writes a run holds a lock on a file in its folder, which goes when the run is over.

The lock is the kernel's, and vanishes with the process however that ends. The file may outlive a kill; without the lock
it means nothing, and is no part of the record.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from spyker.errors import RecordError
from spyker.records.files import LOCK


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Have a record to oneself, or be refused because somebody else writes it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / LOCK
    with lock(path) as file:
        try:
            yield
        finally:
            if is_at(file, path):  # and not another run's, in a folder that somebody has made anew
                path.unlink(missing_ok=True)


def check_unlocked(folder: Path) -> None:
    """Refuse a folder that is written to at this moment, or that holds such a record. This changes nothing."""
    for path in (folder / LOCK, *folder.glob(f"*/{LOCK}")):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError), path.open("rb") as file:
            take(file, path, fcntl.LOCK_SH)


def lock(path: Path) -> IO[bytes]:
    """A locked file, at its place and with our process in it."""
    while True:
        file = path.open("a+b")  # as it is: it may be somebody's
        try:
            take(file, path, fcntl.LOCK_EX)
            if is_at(file, path):
                file.truncate(0)
                file.write(f"{os.getpid()}\n".encode())
                file.flush()
                return file
        except BaseException:
            file.close()
            raise
        file.close()  # its owner has removed it in between


def take(file: IO[bytes], path: Path, kind: int) -> None:
    """Lock a file, unless a run goes on."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        process = file.read().decode("ascii", "replace").strip() or "unknown"
        raise RecordError(
            f"{path.parent}: this run still goes on (process {process}). Wait for it, or end it"
        ) from None
    except OSError:
        return  # a file system that knows no locks: then nobody is refused


def is_at(file: IO[bytes], path: Path) -> bool:
    """Whether an open file is the one that has this name."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
