"""One writer per folder: the writing process holds a lock on a file in it.

The operating system releases the lock when the process ends. The file may remain after a kill; without the lock it has
no meaning. That of a record is deleted after the run, and is not part of the record.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import IO

from spyker.errors import RecordError
from spyker.records.files import LOCK

LOCKED_BYTE = 1 << 30
"""Where Windows locks the file: behind its content, because nobody else can read a byte that is locked."""


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a record; raise a ``RecordError`` if another process writes it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / LOCK
    try:
        file = lock(path, required=False)
    except BlockingIOError as error:
        raise in_progress(folder, error) from None
    with file:
        try:
            yield
        finally:
            if is_at(file, path):  # the folder may have been replaced by another run's
                with contextlib.suppress(PermissionError):  # Windows does not delete an open file
                    path.unlink(missing_ok=True)


def check_unlocked(folder: Path) -> None:
    """Raise a ``RecordError`` if the folder, or a record in it, is locked."""
    for path in (folder / LOCK, *folder.glob(f"*/{LOCK}")):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError), path.open("rb", 0) as file:
            try:
                acquire(file, shared=True, required=False)
            except BlockingIOError as error:
                raise in_progress(path.parent, error) from None


def in_progress(folder: Path, error: BlockingIOError) -> RecordError:
    """Return the error for a record that is being written."""
    return RecordError(f"{folder}: the run is in progress (process {error.strerror}). Wait for it, or stop it")


def lock(path: Path, *, required: bool = True) -> IO[bytes]:
    """Open and lock a file, and write the process id into it. Closing it releases the lock.

    Args:
        path: the file, created if missing.
        required: raise an error if the file system has no locks; otherwise go on without.

    Raises:
        BlockingIOError: another process holds the lock; ``strerror`` is its id.
        OSError: the file cannot be opened or locked.

    """
    while True:
        file = path.open("a+b", buffering=0)  # without truncation: another process may hold it
        try:
            acquire(file, shared=False, required=required)
            if is_at(file, path):
                file.truncate(0)
                file.write(f"{os.getpid()}\n".encode())
                return file
        except BaseException:
            file.close()
            raise
        file.close()  # its owner has deleted it in between


def acquire(file: IO[bytes], *, shared: bool, required: bool) -> None:
    """Lock an open file; raise a ``BlockingIOError`` if another process holds it."""
    try:
        try:
            import fcntl
        except ModuleNotFoundError:
            lock_byte(file)
        else:
            fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        process = file.read().decode("ascii", "replace").strip() or "unknown"
        raise BlockingIOError(errno.EWOULDBLOCK, process) from None
    except OSError:
        if required:
            raise


def lock_byte(file: IO[bytes]) -> None:
    """Lock an open file as Windows does; raise a ``BlockingIOError`` if another process holds it."""
    try:
        msvcrt: ModuleType = importlib.import_module("msvcrt")
    except ModuleNotFoundError:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK)) from None
    os.lseek(file.fileno(), LOCKED_BYTE, os.SEEK_SET)
    try:
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
    except PermissionError:
        raise BlockingIOError from None


def is_at(file: IO[bytes], path: Path) -> bool:
    """Return whether an open file still has this path."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
