"""What a terminal shows of something that takes a while: a title, a bar, a few words, and how long it will take."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn


class Bar:
    """A line that moves, on a terminal. Elsewhere there is none, and subclasses print a line now and then."""

    def __init__(self, title: str, total: float, console: Console | None) -> None:
        self.title, self.total = title, total
        self.console = console or Console(stderr=True)
        self.moves = self.console.is_terminal
        self._bar = Progress(
            TextColumn("[bold]{task.description:12}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[status]}"),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self.console,
        )

    def __enter__(self) -> Self:
        if self.moves:
            self._bar.start()
            self._line = self._bar.add_task(self.title, total=self.total, status="starting")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.moves:
            self._bar.stop()

    def move(self, done: float, status: str) -> None:
        """So much of the total is done, and this is to be said about it."""
        self._bar.update(self._line, completed=done, status=status)
