"""Progress display: a bar on a terminal or in a notebook, otherwise periodic lines."""

from __future__ import annotations

import time
from html import escape
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

REFRESH_SECONDS = 0.2
WIDE = 120  # columns; a narrower terminal shows no bar
LINE_SECONDS = 5.0  # between two lines without a terminal


class ProgressBar:
    """Shows how much of ``total`` is done, on standard error; a ``transient`` bar is erased at the end."""

    def __init__(
        self, title: str, total: float | None = None, console: Console | None = None, *, transient: bool = False
    ) -> None:
        self.title, self.total, self.transient = title, total, transient
        self.console = console or Console(stderr=True)
        self.animated = self.console.is_terminal or self.console.is_jupyter
        self._began = self._shown = time.monotonic()
        self._printed = False
        self._terminal: Progress | None = None
        self._notebook: Any = None  # IPython's display handle

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._terminal is not None:
            self._terminal.stop()

    def restart(self) -> None:
        """Restart the estimate of the remaining time."""
        self._began = time.monotonic()

    def due(self) -> bool:
        """Return whether the display should be refreshed."""
        return time.monotonic() - self._shown >= (REFRESH_SECONDS if self.animated else LINE_SECONDS)

    def show(self, done: float, status: str, *, last: bool = False) -> None:
        """Show progress and status; without a terminal, the ``last`` status is omitted if it would be the only line."""
        self._shown = time.monotonic()
        if self.console.is_jupyter:
            self._display(done, status)
        elif self.console.is_terminal:
            self._draw(done, status)
        elif self._printed or not last:
            text = f"{self.title}: {status}{self._remaining(done)}"
            self.console.print(text, highlight=False, markup=False, soft_wrap=True)
        self._printed = True

    def _remaining(self, done: float) -> str:
        if not self.total or done <= 0:
            return ""
        seconds = (self._shown - self._began) * (self.total - done) / done
        return f" · {seconds:.0f} s left" if seconds < 120 else f" · {seconds / 60:.0f} min left"

    def _draw(self, done: float, status: str) -> None:
        if self._terminal is None:
            wide = self.console.width >= WIDE
            self._terminal = Progress(
                TextColumn("[bold]{task.description:12}" if wide else "[bold]{task.description}"),
                *([BarColumn(bar_width=24)] if wide else []),
                TimeRemainingColumn(compact=not wide),
                TextColumn("left"),
                TextColumn("{task.fields[status]}", markup=False),
                console=self.console,
                transient=self.transient,
            )
            self._terminal.start()
            self._line = self._terminal.add_task(self.title, total=self.total, status=status)
        self._terminal.update(self._line, completed=done, total=self.total, status=status)

    def _display(self, done: float, status: str) -> None:
        """Update an IPython display, which needs no widgets."""
        from IPython.display import display  # only available in notebooks

        text = f"{status}{self._remaining(done)}"
        share = f' value="{done:g}" max="{self.total:g}"' if self.total else ""
        data = {
            "text/plain": f"{self.title}: {text}",
            "text/html": f"<b>{escape(self.title)}</b> <progress{share}></progress> {escape(text)}",
        }
        if self._notebook is None:
            self._notebook = display(data, raw=True, display_id=True)
        else:
            self._notebook.update(data, raw=True)
