"""Run Spyker's command in a Python that lacks what Windows lacks: ``python without_posix.py join FOLDER``.

Modules that exist on POSIX only cannot be imported, functions and constants of ``os``, ``signal`` and ``socket`` are
missing, folders cannot be opened, files can be synced by writers only, an event loop has neither signal handlers nor
readers, and a rename fails once because of a scanner. ``msvcrt`` locks bytes, one owner per open file.
"""

import asyncio
import errno
import fcntl
import os
import signal
import socket
import struct
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

# What chooses its code by the platform when it is imported, and is not what is tested.
import cryptography.x509  # noqa: F401
import grpc.aio  # noqa: F401
import numpy  # noqa: F401
import platformdirs  # noqa: F401
import websockets.asyncio.client  # noqa: F401

MODULES = ("fcntl", "grp", "pwd", "resource", "termios", "tty", "pty", "syslog", "readline", "posix")
OF_OS = """
    O_DIRECTORY O_NOFOLLOW O_CLOEXEC O_NONBLOCK O_SYNC O_DSYNC fork forkpty getuid geteuid getgid getegid setuid
    setgid getgroups chown fchown lchown chroot mkfifo statvfs fstatvfs sched_getaffinity sched_setaffinity getpgid
    getpgrp setpgid killpg setsid nice uname getloadavg sysconf pread pwrite preadv pwritev writev readv fdatasync
    sync posix_fallocate posix_fadvise sendfile wait waitid fchdir pipe2 memfd_create eventfd
"""
OF_SIGNAL = "SIGKILL SIGHUP SIGUSR1 SIGUSR2 SIGALRM SIGCHLD SIGPIPE SIGQUIT pthread_sigmask setitimer alarm"
OF_SOCKET = "SO_REUSEPORT SCM_RIGHTS"
LOCK_COMMAND = 37  # F_OFD_SETLK of Linux: as on Windows, the lock belongs to the open file


def locking(descriptor: int, mode: int, count: int) -> None:
    """Lock bytes at the file's position, as ``msvcrt.locking`` does."""
    assert mode == msvcrt.LK_NBLCK
    position = os.lseek(descriptor, 0, os.SEEK_CUR)
    writable = flags(descriptor, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY
    kind = fcntl.F_WRLCK if writable else fcntl.F_RDLCK
    try:
        flags(descriptor, LOCK_COMMAND, struct.pack("hhqqi4x", kind, os.SEEK_SET, position, count, 0))
    except BlockingIOError:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES)) from None


def remove_posix() -> None:
    """Remove what Windows does not have."""
    sys.modules.update(dict.fromkeys(MODULES))  # an import of one raises ModuleNotFoundError
    sys.modules["msvcrt"] = msvcrt
    for module, names in ((os, OF_OS), (signal, OF_SIGNAL), (socket, OF_SOCKET)):
        for name in names.split():
            if hasattr(module, name):
                delattr(module, name)
    asyncio.SelectorEventLoop.add_signal_handler = unsupported  # type: ignore[method-assign]
    asyncio.SelectorEventLoop.add_reader = unsupported  # type: ignore[method-assign]
    os.open, os.fsync, Path.replace = refuse_folders, refuse_readers, busy_once  # type: ignore[assignment]


def unsupported(*_: Any) -> None:
    """Refuse, as Windows' event loop does."""
    raise NotImplementedError


def refuse_folders(path: Any, *args: Any, **named: Any) -> int:
    """Open a file, but no folder."""
    if os.path.isdir(path):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    return posix_open(path, *args, **named)


def refuse_readers(descriptor: int) -> None:
    """Sync a file that is open for writing."""
    if flags(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    posix_fsync(descriptor)


def busy_once(self: Path, target: Path) -> Path:
    """Rename a file, but not at the first attempt."""
    if (self, target) in attempted:
        return posix_replace(self, target)
    attempted.add((self, target))
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(target))


flags, posix_open, posix_fsync, posix_replace = fcntl.fcntl, os.open, os.fsync, Path.replace
attempted: set[tuple[Path, Path]] = set()
msvcrt: Any = ModuleType("msvcrt")
msvcrt.LK_NBLCK, msvcrt.LK_UNLCK, msvcrt.locking = 2, 0, locking
remove_posix()

if __name__ == "__main__":
    from spyker.cli.main import main

    sys.exit(main(sys.argv[1:]))
