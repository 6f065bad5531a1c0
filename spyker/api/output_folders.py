"""Where a record goes. That is tried before anything else is begun, and what stood there goes last of all."""

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
    """A folder in ``runs/`` that does not exist yet, for a run that was given none."""
    folder, number = ROOT / name, 1
    while folder.exists():
        number += 1
        folder = ROOT / f"{name}-{number}"
    return folder


def place_for_record(folder: Path, *, overwrite: bool) -> OutputFolder:
    """A place where nothing stands, or a record that may go and that nobody writes."""
    check_unlocked(folder)
    return OutputFolder(folder, lambda: check_new(folder, overwrite=overwrite))


class OutputFolder:
    """A folder to write into, as a context: what stands there has passed a check, and it can be written to.

    If the context ends before somebody says :meth:`keep` or :meth:`empty`, everything is as it was.
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
                f"{self.folder} cannot be written ({error.strerror}). Choose another --out, or make it writable"
            ) from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._undo()

    def keep(self) -> None:
        """Everything else is in order, too: what comes now stays."""
        self._made.clear()

    def empty(self) -> None:
        """The same, and what stands in the folder goes, unless somebody else has written there meanwhile."""
        self.check()
        self.keep()
        for child in contents(self.folder):
            if child.is_dir() and not child.is_symlink():
                shutil.rmtree(child)
            else:
                child.unlink()

    def _try(self) -> None:
        """Make the folder and write a page into it; a disk may be full, and permissions say little to root."""
        missing = [folder for folder in (self.folder, *self.folder.parents) if not folder.exists()]
        for folder in reversed(missing):
            folder.mkdir()
            self._made.append(folder)
        page = self.folder / f".try.{os.getpid()}"
        try:
            with page.open("wb") as file:
                file.write(bytes(4096))
                file.flush()
                os.fsync(file.fileno())
        finally:
            page.unlink(missing_ok=True)

    def _undo(self) -> None:
        for folder in reversed(self._made):
            with contextlib.suppress(OSError):  # somebody else has put something there
                folder.rmdir()
