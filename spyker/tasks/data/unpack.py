"""Reading the files of a dataset, packed or not, and refusing what is not theirs.

Never more is unpacked than the file ought to contain, so that a damaged or hostile one cannot fill the memory.
"""

from __future__ import annotations

import gzip
import hashlib
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from spyker.tasks.data.dataset import RawFile, SourceError


def open_plain(path: Path) -> IO[bytes]:
    """A file that is not packed."""
    return path.open("rb")


OPENERS: dict[str, Callable[[Path], Any]] = {"": open_plain, ".gz": gzip.GzipFile, ".xz": lzma.LZMAFile}
BROKEN = (OSError, EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, tarfile.TarError)


def find(folder: Path, file: RawFile) -> Path | None:
    """Where a folder holds a file, packed or not, if it does."""
    for name in (file.name, *file.also):
        for suffix in OPENERS:
            path = folder / f"{name}{suffix}"
            if path.is_file():
                return path
    return None


def read(path: Path, file: RawFile) -> bytes:
    """The content of a file, unpacked and verified."""
    with broken_is_an_error(path.name), OPENERS.get(path.suffix, OPENERS[""])(path) as stream:
        return take(stream, file, path.name)


def read_archive(path: Path, files: tuple[RawFile, ...]) -> dict[str, bytes]:
    """The contents of files in a zip or tar archive, wherever in it they lie, verified."""
    content = {}
    with broken_is_an_error(path.name):
        if path.suffix == ".zip":
            with zipfile.ZipFile(path) as archive:
                for file in files:
                    with archive.open(member(archive.namelist(), file, path)) as stream:
                        content[file.name] = take(stream, file, path.name)
        else:
            with tarfile.open(path) as tar:
                names = tar.getnames()
                for file in files:
                    extracted = tar.extractfile(member(names, file, path))
                    if extracted is None:
                        raise SourceError(f"{path.name}: {file.name} in it is no regular file")
                    with extracted:
                        content[file.name] = take(extracted, file, path.name)
    return content


def member(names: list[str], file: RawFile, path: Path) -> str:
    """The name under which an archive has a file."""
    for name in names:
        if name.rpartition("/")[2] in (file.name, *file.also):
            return name
    raise SourceError(f"{path.name} does not contain {file.name}")


def take(stream: IO[bytes], file: RawFile, where: str) -> bytes:
    """Read a whole file and verify it."""
    content = stream.read(file.size + 1)
    found = hashlib.sha256(content).hexdigest()
    if found != file.sha256:
        size = f"more than {file.size:,}" if len(content) > file.size else f"{len(content):,}"
        raise SourceError(
            f"{where} has the wrong checksum: unpacked {size} bytes with sha256 {found}, "
            f"expected {file.size:,} with {file.sha256}"
        )
    return content


@contextmanager
def broken_is_an_error(where: str) -> Iterator[None]:
    """A file that is cut off, damaged or unreadable is a failure of its source, not of the program."""
    try:
        yield
    except BROKEN as error:
        raise SourceError(f"{where} is damaged or unreadable ({error or type(error).__name__})") from None
