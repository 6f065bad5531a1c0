"""Live progress of a run, from its facts."""

from __future__ import annotations

from rich.console import Console

from spyker.plots.progress_bar import ProgressBar
from spyker.protocol.facts import (
    CloudRoundEnded,
    EarlySyncStarted,
    ModelRestored,
    RateHalved,
    RateRestored,
    SyncStarted,
    UpdateApplied,
)
from spyker.records import Evaluated, Fact, RunStarted
from spyker.records.summary import SyncCount


class LiveProgress(ProgressBar):
    """Shows the progress of a run in virtual time."""

    def __init__(self, title: str, duration: float, metric: str, console: Console | None = None) -> None:
        super().__init__(title, duration, console)
        self.duration, self.metric = duration, metric
        self.updates, self.syncs = 0, SyncCount()
        self.score: float | None = None
        self.note = ""
        if self.animated:
            self.show(0.0, "starting")

    def fact(self, t: float, fact: Fact) -> None:
        """Process a fact."""
        if isinstance(fact, RunStarted):
            self.metric = fact.metric
        elif isinstance(fact, UpdateApplied):
            self.updates += 1
        elif isinstance(fact, SyncStarted | EarlySyncStarted | CloudRoundEnded):
            self.syncs.fact(fact)
        elif isinstance(fact, Evaluated):
            self.score = fact.mean
        elif isinstance(fact, RateHalved):
            self.note = f" · first trainings diverged at server {fact.server}: rate {fact.rate:g}"
        elif isinstance(fact, RateRestored):
            self.note = ""
        elif isinstance(fact, ModelRestored):
            self.note = f" · diverged, last good model restored: gain {fact.gain:g}"
        if t >= self.duration or self.due():
            self.show(t, self.status(t), last=t >= self.duration)

    def status(self, t: float) -> str:
        """Return time, counts and the latest score as text."""
        score = "–" if self.score is None else f"{self.score:.3f}"
        counts = f"{self.updates:,} updates · {self.metric} {score} · {self.syncs.count} syncs"
        return f"t {t:.1f}/{self.duration:g} s · {counts}{self.note}"
