"""Reading and verification of dataset files, compressed or not.

At most the expected number of bytes is decompressed, so that a damaged or hostile file cannot exhaust the memory.
"""

from __future__ import annotations

import gzip
import hashlib
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from spyker.tasks.data.dataset import RawFile, SourceError

OPENERS: dict[str, Callable[[Path], Any]] = {
    "": lambda path: path.open("rb"),
    ".gz": gzip.GzipFile,
    ".xz": lzma.LZMAFile,
}
READ_ERRORS = (OSError, EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, tarfile.TarError)


def find(folder: Path, file: RawFile) -> Path | None:
    """Return the path of a file in a folder, compressed or not, or ``None``."""
    for name in (file.name, *file.aliases):
        for suffix in OPENERS:
            path = folder / f"{name}{suffix}"
            if path.is_file():
                return path
    return None


def read(path: Path, file: RawFile) -> bytes:
    """Return the content of a file, decompressed and verified."""
    with source_errors(path.name), OPENERS.get(path.suffix, OPENERS[""])(path) as stream:
        return read_verified(stream, file, path.name)


def read_archive(path: Path, files: Sequence[RawFile]) -> dict[str, bytes]:
    """Return the verified contents of files in a zip or tar archive; their folders are ignored."""
    content = {}
    with source_errors(path.name):
        if path.suffix == ".zip":
            with zipfile.ZipFile(path) as archive:
                for file in files:
                    with archive.open(member(archive.namelist(), file, path)) as stream:
                        content[file.name] = read_verified(stream, file, path.name)
        else:
            with tarfile.open(path) as tar:
                names = tar.getnames()
                for file in files:
                    extracted = tar.extractfile(member(names, file, path))
                    if extracted is None:
                        raise SourceError(f"{path.name}: {file.name} in it is not a regular file")
                    with extracted:
                        content[file.name] = read_verified(extracted, file, path.name)
    return content


def member(names: list[str], file: RawFile, path: Path) -> str:
    """Return the name of a file in an archive."""
    for name in names:
        if name.rpartition("/")[2] in (file.name, *file.aliases):
            return name
    raise SourceError(f"{path.name} does not contain {file.name}")


def read_verified(stream: IO[bytes], file: RawFile, where: str) -> bytes:
    """Read a file and check its checksum."""
    content = stream.read(file.size + 1)
    found = hashlib.sha256(content).hexdigest()
    if found != file.sha256:
        size = f"more than {file.size:,}" if len(content) > file.size else f"{len(content):,}"
        raise SourceError(
            f"{where} has the wrong checksum: {size} bytes with sha256 {found}, "
            f"expected {file.size:,} with {file.sha256}"
        )
    return content


@contextmanager
def source_errors(where: str) -> Iterator[None]:
    """Turn errors of a truncated, damaged or unreadable file into a ``SourceError``."""
    try:
        yield
    except READ_ERRORS as error:
        raise SourceError(f"{where} is damaged or unreadable ({error or type(error).__name__})") from None
