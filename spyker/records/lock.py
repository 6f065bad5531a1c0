"""One writer per record: the writing process holds a lock on a file in the record's folder, deleted after the run.

The kernel releases the lock when the process ends. The file may remain after a kill; without the lock it has no
meaning, and it is not part of the record.
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
    """Lock a record; raise a ``RecordError`` if another process writes it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / LOCK
    with lock(path) as file:
        try:
            yield
        finally:
            if is_at(file, path):  # the folder may have been replaced by another run's
                path.unlink(missing_ok=True)


def check_unlocked(folder: Path) -> None:
    """Raise a ``RecordError`` if the folder, or a record in it, is locked."""
    for path in (folder / LOCK, *folder.glob(f"*/{LOCK}")):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError), path.open("rb") as file:
            take(file, path, fcntl.LOCK_SH)


def lock(path: Path) -> IO[bytes]:
    """Open and lock a file, and write the process id into it."""
    while True:
        file = path.open("a+b")  # without truncation: another process may hold it
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
        file.close()  # its owner has deleted it in between


def take(file: IO[bytes], path: Path, kind: int) -> None:
    """Lock a file; raise a ``RecordError`` if another process holds it."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        process = file.read().decode("ascii", "replace").strip() or "unknown"
        raise RecordError(
            f"{path.parent}: the run is in progress (process {process}). Wait for it, or stop it"
        ) from None
    except OSError:
        return  # the file system has no locks


def is_at(file: IO[bytes], path: Path) -> bool:
    """Return whether an open file still has this path."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
