"""What a tracker is: it opens a page for each run, and rows of numbers are written there."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, ClassVar, NamedTuple

from spyker.errors import TrackerError
from spyker.plots.trackers.rows import MetricRow
from spyker.records import RunStarted


class RunDescription(NamedTuple):
    """What run it is: its name, perhaps ``group/name``, its first fact and its settings."""

    name: str
    start: RunStarted
    settings: Mapping[str, object]
    began: float
    """The unix time of its time zero; of an emulated run, when it was begun to be told."""

    @property
    def group(self) -> str | None:
        """What it was run together with."""
        group, slash, _ = self.name.rpartition("/")
        return group if slash else None


class RunLog(ABC):
    """Where one run is written."""

    @abstractmethod
    def write(self, row: MetricRow) -> None:
        """One row more."""

    @abstractmethod
    def end(self, summary: Mapping[str, Any] | None) -> None:
        """The run is over; it has no summary if it failed."""


class Tracker(ABC):
    """Somewhere to write runs to, ``place`` in the tracker's own words. Its packages are imported when it is used."""

    name: ClassVar[str]
    module: ClassVar[str]
    """What must be installed; the extra has the tracker's name."""
    meaning: ClassVar[str]
    """What stands behind the ``=``."""

    def __init__(self, place: str) -> None:
        self.place = place

    def check(self) -> None:
        """Raise :class:`TrackerError` if it cannot be told runs, before one is begun."""
        if find_spec(self.module) is None:
            raise TrackerError(
                f"needs {self.module}, which is not installed", f"Run pip install 'spyker-fl[{self.name}]'"
            )
        self.prepare()

    @abstractmethod
    def prepare(self) -> None:
        """Whatever else can be tried beforehand."""

    @abstractmethod
    def open(self, about: RunDescription) -> RunLog:
        """A page for a run."""


def final_numbers(summary: Mapping[str, Any] | None) -> dict[str, float]:
    """What a summary has to say beyond the last row: when targets were reached, and how many updates that took."""
    found = {}
    for key, unit in (("time_to_target", "seconds"), ("updates_to_target", "updates")):
        for target, value in ((summary or {}).get(key) or {}).items():
            if value is not None:
                found[f"reached {target}/{unit}"] = float(value)
    return found
