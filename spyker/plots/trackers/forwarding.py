"""One run, told to some trackers. One that fails is left out from then on: the run goes on, and its record is whole."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from spyker.plots.run_groups import settings_of
from spyker.plots.trackers.rows import MetricRows
from spyker.plots.trackers.tracker import RunDescription, RunLog, Tracker
from spyker.records import Fact, RunRecord, RunStarted, read


def to_stderr(text: str) -> None:
    """Complain to whoever looks on."""
    print(f"spyker: {text}", file=sys.stderr)


class TrackerForwarder:
    """Passes the facts of one run on. As a context manager it closes what it opened, whatever happens."""

    def __init__(
        self, trackers: Sequence[Tracker], folder: Path, name: str, complain: Callable[[str], None] = to_stderr
    ) -> None:
        """``folder`` is where the run's scenario is read: its record."""
        self._trackers, self._folder, self._name, self._complain = trackers, folder, name, complain
        self._readings: MetricRows | None = None
        self._pages: dict[Tracker, RunLog] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end(None)

    @property
    def watches(self) -> list[Callable[[float, Fact], None]]:
        """Who is to be told facts: nobody, if there is no tracker."""
        return [self.fact] if self._trackers else []

    def fact(self, t: float, fact: Fact) -> None:
        """One more fact. The first, which says what run it is, opens the pages."""
        if isinstance(fact, RunStarted):
            if self._readings is None:
                self._open(fact)
        elif self._readings is not None:
            row = self._readings.fact(t, fact)
            if row is not None:
                for tracker, page in list(self._pages.items()):
                    self._try(tracker, partial(page.write, row))

    def _open(self, start: RunStarted) -> None:
        self._readings = MetricRows(start)
        known = settings_of(start, RunRecord(self._folder).scenario) | {
            "algorithm": start.algorithm,
            "seed": start.seed,
        }
        about = RunDescription(self._name, start, known, time.time() if start.began is None else start.began)
        for tracker in self._trackers:
            page = self._try(tracker, partial(tracker.open, about))
            if page is not None:
                self._pages[tracker] = page

    def end(self, summary: Mapping[str, Any] | None) -> None:
        """The run is over. Only the first call counts."""
        pages, self._pages = self._pages, {}
        for tracker, page in pages.items():
            self._try(tracker, partial(page.end, summary))

    def _try(self, tracker: Tracker, do: Callable[[], Any]) -> Any:
        """Whatever goes wrong in somebody else's program or network is no reason to lose a run."""
        try:
            return do()
        except Exception as error:
            self._pages.pop(tracker, None)
            problem = str(error) or type(error).__name__
            self._complain(f"{tracker.name} failed and is told no more of {self._name}: {problem}")
            return None


def forward_record(trackers: Sequence[Tracker], folder: Path, name: str) -> None:
    """Tell a run that is over, from its record."""
    if not trackers:
        return
    with TrackerForwarder(trackers, folder, name) as following:
        for t, fact, _ in read(folder):
            following.fact(t, fact)
        following.end(RunRecord(folder).summary)
