"""One writer per folder: whoever writes there holds a lock on a file in it.

The lock is the kernel's, and vanishes with the process however that ends. The file may outlive a kill; without the lock
it means nothing. That of a record goes when the run is over, and is no part of the record.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from spyker.errors import RecordError
from spyker.records.files import GOES_ON


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Have a record to oneself, or be refused because somebody else writes it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / GOES_ON
    try:
        file = lock(path, required=False)
    except BlockingIOError as error:
        raise goes_on(folder, error) from None
    with file:
        try:
            yield
        finally:
            if is_at(file, path):  # and not another run's, in a folder that somebody has made anew
                path.unlink(missing_ok=True)


def check_unlocked(folder: Path) -> None:
    """Refuse a folder that is written to at this moment, or that holds such a record. This changes nothing."""
    for path in (folder / GOES_ON, *folder.glob(f"*/{GOES_ON}")):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError), path.open("rb") as file:
            try:
                take(file, fcntl.LOCK_SH, required=False)
            except BlockingIOError as error:
                raise goes_on(path.parent, error) from None


def goes_on(folder: Path, error: BlockingIOError) -> RecordError:
    """Say that a record is being written."""
    return RecordError(f"{folder}: this run still goes on (process {error.strerror}). Wait for it, or end it")


def lock(path: Path, *, required: bool = True) -> IO[bytes]:
    """Open and lock a file, with our process in it. Whoever closes it releases the lock.

    Args:
        path: the file, which is made if need be.
        required: refuse a file system that knows no locks; otherwise nobody is refused there.

    Raises:
        BlockingIOError: somebody else has the lock; ``strerror`` is the number of that process.
        OSError: the file cannot be opened or locked.

    """
    while True:
        file = path.open("a+b")  # as it is: it may be somebody's
        try:
            take(file, fcntl.LOCK_EX, required=required)
            if is_at(file, path):
                file.truncate(0)
                file.write(f"{os.getpid()}\n".encode())
                file.flush()
                return file
        except BaseException:
            file.close()
            raise
        file.close()  # its owner has removed it in between


def take(file: IO[bytes], kind: int, *, required: bool) -> None:
    """Lock an open file, unless somebody else has it."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        process = file.read().decode("ascii", "replace").strip() or "unknown"
        raise BlockingIOError(errno.EWOULDBLOCK, process) from None
    except OSError:
        if required:
            raise


def is_at(file: IO[bytes], path: Path) -> bool:
    """Whether an open file is the one that has this name."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
