"""How far something is that takes a while: on a terminal and in a notebook a bar, elsewhere a line now and then."""

from __future__ import annotations

import time
from html import escape
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

REFRESH_SECONDS = 0.2
WIDE = 120  # columns; where there are fewer, there is no bar
LINE_SECONDS = 5.0  # between two lines, where there is nothing to draw on


class ProgressBar:
    """Shows how much of ``total`` is done. Writes to standard error, and nothing before there is something to say.

    A ``passing`` bar leaves nothing behind on a terminal when it ends.
    """

    def __init__(
        self, title: str, total: float | None = None, console: Console | None = None, *, passing: bool = False
    ) -> None:
        self.title, self.total, self.passing = title, total, passing
        self.console = console or Console(stderr=True)
        self.moves = self.console.is_terminal or self.console.is_jupyter
        self._began = self._shown = time.monotonic()
        self._spoke = False
        self._terminal: Progress | None = None
        self._notebook: Any = None  # the handle of what IPython displays

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._terminal is not None:
            self._terminal.stop()

    def restart(self) -> None:
        """Something else begins, which takes a time of its own."""
        self._began = time.monotonic()

    def due(self) -> bool:
        """Whether enough time has passed since something was shown."""
        return time.monotonic() - self._shown >= (REFRESH_SECONDS if self.moves else LINE_SECONDS)

    def show(self, done: float, status: str, *, last: bool = False) -> None:
        """So much is done, and this is to be said about it. What is ``last`` makes no line where none went before."""
        self._shown = time.monotonic()
        if self.console.is_jupyter:
            self._display(done, status)
        elif self.console.is_terminal:
            self._draw(done, status)
        elif self._spoke or not last:
            text = f"{self.title}: {status}{self._left(done)}"
            self.console.print(text, highlight=False, markup=False, soft_wrap=True)
        self._spoke = True

    def _left(self, done: float) -> str:
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
                TextColumn("{task.fields[status]}", markup=False),  # what has no room at the end of it is cut
                console=self.console,
                transient=self.passing,
            )
            self._terminal.start()
            self._line = self._terminal.add_task(self.title, total=self.total, status=status)
        self._terminal.update(self._line, completed=done, total=self.total, status=status)

    def _display(self, done: float, status: str) -> None:
        """IPython's own way to change what was displayed: it needs no widgets."""
        from IPython.display import display  # there is one, in a notebook

        text = f"{status}{self._left(done)}"
        share = f' value="{done:g}" max="{self.total:g}"' if self.total else ""
        data = {
            "text/plain": f"{self.title}: {text}",
            "text/html": f"<b>{escape(self.title)}</b> <progress{share}></progress> {escape(text)}",
        }
        if self._notebook is None:
            self._notebook = display(data, raw=True, display_id=True)
        else:
            self._notebook.update(data, raw=True)
