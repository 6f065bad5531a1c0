"""Live progress of a run, made from the facts as they are written."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from spyker.protocol.facts import CloudRoundEnded, SyncStarted, UpdateApplied
from spyker.records import Evaluated, Fact

REFRESH_SECONDS = 0.2
PLAIN_SECONDS = 5.0  # between two lines, where there is no terminal to draw on


class LiveProgress:
    """A line that moves, on a terminal; a line now and then, elsewhere. Writes to standard error."""

    def __init__(self, title: str, duration: float, metric: str, console: Console | None = None) -> None:
        self.title, self.duration, self.metric = title, duration, metric
        self.console = console or Console(stderr=True)
        self.updates = self.syncs = 0
        self.score: float | None = None
        self._started = self._shown = time.monotonic()
        self._bar: Progress | None = None

    def __enter__(self) -> LiveProgress:
        if self.console.is_terminal:
            self._bar = Progress(
                TextColumn("[bold]{task.description:12}"),
                BarColumn(bar_width=24),
                TextColumn("{task.fields[status]}"),
                TextColumn("left"),
                TimeRemainingColumn(),
                console=self.console,
            )
            self._bar.start()
            self._line = self._bar.add_task(self.title, total=self.duration, status="starting")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def fact(self, t: float, fact: Fact, queue: int | None = None) -> None:
        """Take note of a fact."""
        if isinstance(fact, UpdateApplied):
            self.updates += 1
        elif isinstance(fact, SyncStarted):
            self.syncs = max(self.syncs, fact.bid)
        elif isinstance(fact, CloudRoundEnded):
            self.syncs = fact.round
        elif isinstance(fact, Evaluated):
            self.score = fact.mean
        now = time.monotonic()
        if now - self._shown >= (REFRESH_SECONDS if self._bar else PLAIN_SECONDS) or t >= self.duration:
            self._shown = now
            self._show(t, now - self._started)

    def status(self, t: float) -> str:
        """Where the run stands."""
        score = "–" if self.score is None else f"{self.score:.3f}"
        return f"t {t:.1f}/{self.duration:g} s · {self.updates:,} updates · {self.metric} {score} · {self.syncs} syncs"

    def _show(self, t: float, elapsed: float) -> None:
        if self._bar is not None:
            self._bar.update(self._line, completed=t, status=self.status(t))
        elif elapsed >= PLAIN_SECONDS:
            left = elapsed * (self.duration - t) / t if t > 0 else 0.0
            self.console.print(f"{self.title}: {self.status(t)} · {left:.0f} s left", highlight=False)
