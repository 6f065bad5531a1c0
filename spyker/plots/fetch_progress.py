"""Progress of what takes its time before a run: downloads, unpacking, verifying."""

from __future__ import annotations

from rich.console import Console

from spyker.plots.progress_bar import ProgressBar


class FetchProgress(ProgressBar):
    """Call it with what is being done, how many bytes are done, and of how many."""

    def __init__(self, title: str, console: Console | None = None) -> None:
        super().__init__(title, None, console, passing=True)
        self._what = ""

    def __call__(self, what: str, done: int, total: int) -> None:
        """Take note; what is new is said at once."""
        if what != self._what or self.due():
            if what != self._what:
                self.restart()
            self._what, self.total = what, total or None
            size = f" ({done / 1e6:.0f} of {total / 1e6:.0f} MB)" if total and done else ""
            self.show(done, f"{what}{size}")
