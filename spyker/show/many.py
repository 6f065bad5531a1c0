"""Progress of many runs at once: on a terminal a bar, elsewhere a line now and then."""

from __future__ import annotations

import time

from rich.console import Console

from spyker.show.bar import Bar

PLAIN_SECONDS = 10.0


class ManyProgress(Bar):
    """How much of ``total`` work is done, in whatever unit of work the caller has."""

    def __init__(self, title: str, runs: int, total: float, console: Console | None = None) -> None:
        super().__init__(title, total, console)
        self.runs = runs
        self._began = self._shown = time.monotonic()

    def show(self, finished: int, done: float) -> None:
        """Say that so many runs are finished and so much work is done."""
        status, now = f"{finished} of {self.runs} runs", time.monotonic()
        if self.moves:
            self.move(done, status)
        elif now - self._shown >= PLAIN_SECONDS:
            self._shown = now
            left = f"{(now - self._began) * (self.total - done) / done / 60:.1f} min left" if done > 0 else "starting"
            share = done / self.total if self.total else 1.0
            self.console.print(f"{self.title}: {status}, {share:.0%} done, {left}", highlight=False)
