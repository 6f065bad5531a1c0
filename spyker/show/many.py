"""Progress of many runs at once: on a terminal a bar, elsewhere a line now and then."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

PLAIN_SECONDS = 10.0


class ManyProgress:
    """How much of ``total`` work is done, in whatever unit of work the caller has."""

    def __init__(self, title: str, runs: int, total: float, console: Console | None = None) -> None:
        self.title, self.runs, self.total = title, runs, total
        self.console = console or Console(stderr=True)
        self._began = self._shown = time.monotonic()
        self._bar: Progress | None = None

    def __enter__(self) -> ManyProgress:
        if self.console.is_terminal:
            self._bar = Progress(
                TextColumn("[bold]{task.description}"),
                BarColumn(bar_width=24),
                TextColumn("{task.fields[status]}"),
                TextColumn("left"),
                TimeRemainingColumn(),
                console=self.console,
            )
            self._bar.start()
            self._line = self._bar.add_task(self.title, total=self.total, status="starting")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, finished: int, done: float) -> None:
        """Say that so many runs are finished and so much work is done."""
        status, now = f"{finished} of {self.runs} runs", time.monotonic()
        if self._bar is not None:
            self._bar.update(self._line, completed=done, status=status)
        elif now - self._shown >= PLAIN_SECONDS:
            self._shown = now
            left = f"{(now - self._began) * (self.total - done) / done / 60:.1f} min left" if done > 0 else "starting"
            share = done / self.total if self.total else 1.0
            self.console.print(f"{self.title}: {status}, {share:.0%} done, {left}", highlight=False)
