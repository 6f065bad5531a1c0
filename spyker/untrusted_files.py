"""Reading of files that another person may have written.

A path may name a FIFO, a device or a sparse file of terabytes, and a table may be nested without end. Each function
reads a bounded number of bytes of a regular file, and raises an ``OSError`` or a ``ValueError`` otherwise.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import sys
import tomllib
from io import FileIO
from pathlib import Path
from typing import Any

import msgspec

from spyker.errors import UsageError

LARGEST_TABLE = 16 << 20  # bytes of a TOML or JSON file, and of a line of facts
DEEPEST = 64  # levels of a table
MEMORY_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")  # of a container
PART = r"(?:[\w-]++|\"[^\"\n]*+\"|'[^'\n]*+')"
FLAGS = sum(getattr(os, name, 0) for name in ("O_NONBLOCK", "O_CLOEXEC", "O_BINARY"))  # those that this system has
LONG_KEY = re.compile(rf"(?<![\w-]){PART}(?:[ \t]*+\.[ \t]*+{PART}){{{DEEPEST}}}")  # takes tomllib quadratic time


def open_regular(path: Path) -> FileIO:
    """Open a regular file for reading, without a buffer. Never waits for a writer.

    Raises:
        OSError: the file cannot be opened, or is not a regular file.

    """
    descriptor = os.open(path, os.O_RDONLY | FLAGS)
    file = FileIO(descriptor, "rb")
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        file.close()
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        raise OSError(errno.EINVAL, "Not a regular file", str(path))
    return file


def read_bytes(path: Path, limit: int | None = None) -> bytes:
    """Read a regular file.

    Args:
        path: the file.
        limit: maximum number of bytes; default: this machine's memory, for models and other arrays.

    Raises:
        OSError: the file cannot be read, is not a regular file, or is too large.

    """
    with open_regular(path) as file:
        check_size(path, os.fstat(file.fileno()).st_size, limit)
        content = file.read(-1 if limit is None else limit + 1)
    check_size(path, len(content), limit)  # it may have grown
    return content


def check_size(path: Path, size: int, limit: int | None = None) -> None:
    """Raise an ``OSError`` if a file exceeds its limit; default: this machine's memory."""
    largest = machine_bytes() if limit is None else limit
    if size > largest:
        raise OSError(errno.EFBIG, f"Larger than {largest:,} bytes", str(path))


def check_regular(path: Path) -> None:
    """Raise an ``OSError`` unless a library may read this path: a regular file that fits into memory."""
    with open_regular(path) as file:
        check_size(path, os.fstat(file.fileno()).st_size)


def machine_bytes() -> int:
    """Return the memory limit of this process."""
    known = hasattr(os, "sysconf")  # not on Windows
    sizes = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if known else sys.maxsize]
    for limit in MEMORY_LIMITS:
        with contextlib.suppress(OSError, ValueError):  # no such file, or "max"
            sizes.append(int(Path(limit).read_text("ascii")))
    return min(sizes)


def read_text(path: Path) -> str:
    """Read a text file of limited size; raise an ``OSError`` or a ``UnicodeDecodeError``."""
    return read_bytes(path, LARGEST_TABLE).decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file of limited size and depth; raise an ``OSError`` or a ``ValueError``."""
    return parse_toml(read_text(path))


def read_json(path: Path) -> Any:
    """Read a JSON file of limited size and depth; raise an ``OSError`` or a ``ValueError``."""
    return parse_json(read_bytes(path, LARGEST_TABLE))


def parse_toml(text: str) -> dict[str, Any]:
    """Parse TOML of limited depth; raise a ``ValueError``."""
    if LONG_KEY.search(text):
        raise ValueError(f"a key has more than {DEEPEST} parts")
    try:
        table = tomllib.loads(text)
    except RecursionError:
        raise too_deep() from None
    check_depth(table)
    return table


def parse_json(text: str | bytes) -> Any:
    """Parse JSON of limited depth; raise a ``ValueError``."""
    try:
        value = msgspec.json.decode(text)
    except RecursionError:
        raise too_deep() from None
    check_depth(value)
    return value


def check_depth(value: Any) -> None:
    """Raise a ``ValueError`` if lists and dictionaries are nested too deeply for recursive functions."""
    level = [value]
    for _ in range(DEEPEST + 1):
        level = [
            child
            for each in level
            if isinstance(each, dict | list)
            for child in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return
    raise too_deep()


def too_deep() -> ValueError:
    """Return the error for a table with too many levels."""
    return ValueError(f"it is nested more than {DEEPEST} levels deep")


def load_settings(path: Path, remedy: str = "Name an existing TOML file") -> dict[str, Any]:
    """Read a TOML file that a user named.

    Args:
        path: the file.
        remedy: what to do if there is no such file.

    Raises:
        UsageError: the file cannot be read, or is not valid TOML.

    """
    try:
        return read_toml(path)
    except OSError as error:
        raise UsageError(str(path), f"cannot be read ({error.strerror})", remedy) from None
    except UnicodeDecodeError:
        raise UsageError(str(path), "is not a text file in UTF-8", "Name a TOML file") from None
    except ValueError as error:
        raise UsageError(str(path), f"is not valid TOML: {error}", "Fix that line") from None
