"""Output folders. They are checked first; existing content is deleted last, when all else is ready."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from spyker.records import RecordError, check_new
from spyker.records.files import contents
from spyker.records.lock import check_unlocked

ROOT = Path("runs")


def new_folder(name: str) -> Path:
    """Return a new folder name in ``runs/``."""
    folder, number = ROOT / name, 1
    while folder.exists():
        number += 1
        folder = ROOT / f"{name}-{number}"
    return folder


def place_for_record(folder: Path, *, overwrite: bool) -> OutputFolder:
    """Return an output folder that is empty, or holds a record that may be overwritten and is not locked."""
    check_unlocked(folder)
    return OutputFolder(folder, lambda: check_new(folder, overwrite=overwrite))


class OutputFolder:
    """A checked, writable output folder, as a context manager.

    Unless :meth:`keep` or :meth:`empty` is called, the folder is left unchanged.
    """

    def __init__(self, folder: Path, check: Callable[[], None] = lambda: None) -> None:
        self.folder, self.check = folder, check
        self._made: list[Path] = []

    def __enter__(self) -> Self:
        try:
            self.check()
            self._try()
        except OSError as error:
            self._undo()
            raise RecordError(
                f"cannot write {self.folder} ({error.strerror}). Choose another --out, or make it writable"
            ) from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._undo()

    def keep(self) -> None:
        """Keep the folder and its content."""
        self._made.clear()

    def empty(self) -> None:
        """Delete the content of the folder, after the check has passed again."""
        self.check()
        self.keep()
        for child in contents(self.folder):
            if child.is_dir() and not child.is_symlink():
                shutil.rmtree(child)
            else:
                child.unlink()

    def _try(self) -> None:
        """Create the folder and write a block into it; permissions alone do not reveal a full disk."""
        missing = [folder for folder in (self.folder, *self.folder.parents) if not folder.exists()]
        for folder in reversed(missing):
            folder.mkdir()
            self._made.append(folder)
        probe = self.folder / f".try.{os.getpid()}"
        try:
            with probe.open("wb") as file:
                file.write(bytes(4096))
                file.flush()
                os.fsync(file.fileno())
        finally:
            probe.unlink(missing_ok=True)

    def _undo(self) -> None:
        for folder in reversed(self._made):
            with contextlib.suppress(OSError):  # it is no longer empty
                folder.rmdir()
