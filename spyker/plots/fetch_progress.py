"""Progress of data preparation: downloads, extraction, verification."""

from __future__ import annotations

from rich.console import Console

from spyker.plots.progress_bar import ProgressBar


class FetchProgress(ProgressBar):
    """A progress callback, called with the current step, the bytes processed and the total."""

    def __init__(self, title: str, console: Console | None = None) -> None:
        super().__init__(title, None, console, transient=True)
        self._step = ""

    def __call__(self, step: str, done: int, total: int) -> None:
        """Show progress; a new step is shown immediately."""
        if step != self._step or self.due():
            if step != self._step:
                self.restart()
            self._step, self.total = step, total or None
            size = f" ({done / 1e6:.0f} of {total / 1e6:.0f} MB)" if total and done else ""
            self.show(done, f"{step}{size}")
