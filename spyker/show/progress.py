"""Live progress of a run, made from the facts as they are written."""

from __future__ import annotations

import time

from rich.console import Console

from spyker.protocol.facts import CloudRoundEnded, SyncStarted, UpdateApplied
from spyker.records import Evaluated, Fact
from spyker.show.bar import Bar

REFRESH_SECONDS = 0.2
PLAIN_SECONDS = 5.0  # between two lines, where there is no terminal to draw on


class LiveProgress(Bar):
    """How far a run is, in virtual time. Writes to standard error."""

    def __init__(self, title: str, duration: float, metric: str, console: Console | None = None) -> None:
        super().__init__(title, duration, console)
        self.duration, self.metric = duration, metric
        self.updates = self.syncs = 0
        self.score: float | None = None
        self._started = self._shown = time.monotonic()

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
        if now - self._shown >= (REFRESH_SECONDS if self.moves else PLAIN_SECONDS) or t >= self.duration:
            self._shown = now
            self._show(t, now - self._started)

    def status(self, t: float) -> str:
        """Where the run stands."""
        score = "–" if self.score is None else f"{self.score:.3f}"
        return f"t {t:.1f}/{self.duration:g} s · {self.updates:,} updates · {self.metric} {score} · {self.syncs} syncs"

    def _show(self, t: float, elapsed: float) -> None:
        if self.moves:
            self.move(t, self.status(t))
        elif elapsed >= PLAIN_SECONDS:
            left = elapsed * (self.duration - t) / t if t > 0 else 0.0
            self.console.print(f"{self.title}: {self.status(t)} · {left:.0f} s left", highlight=False)
