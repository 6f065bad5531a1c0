"""Progress of what takes its time before a run: downloads, unpacking, verifying."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, SpinnerColumn, TextColumn

PLAIN_SECONDS = 5.0  # between two lines about the same thing, where there is no terminal to draw on


class FetchProgress:
    """Call it with what is being done, how many bytes are done, and of how many. Writes to standard error."""

    def __init__(self, title: str, console: Console | None = None) -> None:
        self.title = title
        self.console = console or Console(stderr=True)
        self._what, self._shown = "", 0.0
        self._bar: Progress | None = None

    def __enter__(self) -> FetchProgress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, what: str, done: int, total: int) -> None:
        """Take note; whoever has nothing to report shows nothing."""
        if self.console.is_terminal:
            if self._bar is None:
                columns = (SpinnerColumn(), TextColumn("[bold]{task.description}"), BarColumn(24), DownloadColumn())
                self._bar = Progress(*columns, TextColumn("{task.fields[what]}"), console=self.console, transient=True)
                self._bar.start()
                self._line = self._bar.add_task(self.title, total=None, what="")
            self._bar.update(self._line, completed=done, total=total or None, what=what)
            return
        now = time.monotonic()
        if what != self._what or now - self._shown >= PLAIN_SECONDS:
            size = f" ({done / 1e6:.0f} of {total / 1e6:.0f} MB)" if total and done else ""
            self.console.print(f"{self.title}: {what}{size}", highlight=False, soft_wrap=True)
            self._what, self._shown = what, now
