"""What an item of the reproduction is: runs to make, and what to say about them.

An item declares its runs as settings laid over the reading of the paper (:mod:`spyker.experiments.reading`), and has
one function that turns the finished runs into a section: tables, claims, a figure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from matplotlib.figure import Figure

from spyker.experiments.claims import Claim
from spyker.experiments.numbers import Sample, sample
from spyker.protocol.fedasync import FedAsync
from spyker.protocol.fedavg import FedAvg
from spyker.protocol.hierfavg import Edge
from spyker.protocol.spyker import Spyker
from spyker.protocol.sync_spyker import SyncSpyker
from spyker.records import RunRecord
from spyker.show.curves import Curve, curve

Settings = Mapping[str, object]
NOT_IN_PAPER = "not in the paper"
ALGORITHM_TITLES = {a.name: a.title for a in (Spyker, SyncSpyker, FedAsync, Edge, FedAvg)}  # of the paper


@dataclass(frozen=True, slots=True)
class Profile:
    """How much is spent on a reproduction."""

    name: str
    seeds: int
    says: str
    """What a reader must know about its sizes."""
    tasks: Mapping[str, Settings] = field(default_factory=dict)
    """Settings by the task that an item asks for."""
    validation: Settings = field(default_factory=dict)
    """Settings that hold training images back, for items that choose among settings."""
    settings: Settings = field(default_factory=dict)
    """Settings that override everything else."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table, whose first column names the rows."""

    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    prose: bool = False
    """Whether the other columns hold words, too, instead of numbers."""

    def markdown(self) -> str:
        """As Markdown."""
        rule = ["---"] + ["---" if self.prose else "---:"] * (len(self.heads) - 1)
        lines = ["| " + " | ".join(cells) + " |\n" for cells in (self.heads, rule, *self.rows)]
        return (f"{self.title}\n\n" if self.title else "") + "".join(lines)


@dataclass(frozen=True, slots=True)
class Section:
    """What an item found."""

    claims: list[Claim]
    tables: list[Table]
    figure: Figure
    caption: str
    numbers: Mapping[tuple[str, str], Sample]
    """Everything measured, by run and measure, for the CSV file."""
    notes: str = ""


class Results:
    """The finished runs of an item, by label; one run per seed, ``None`` where training diverged."""

    def __init__(self, runs: Mapping[str, Sequence[RunRecord | None]], settings: Mapping[str, Settings]) -> None:
        self.runs, self.settings = runs, settings
        self._curves: dict[str, list[Curve | None]] = {}
        self.numbers: dict[tuple[str, str], Sample] = {}

    @property
    def labels(self) -> list[str]:
        """The runs' names."""
        return list(self.runs)

    def curves(self, label: str) -> list[Curve | None]:
        """The evaluations of a run, once per seed."""
        if label not in self._curves:
            self._curves[label] = [None if run is None else curve(run, label) for run in self.runs[label]]
        return self._curves[label]

    def measure(self, label: str, name: str, of: Callable[[Curve], float | None]) -> Sample:
        """Measure something on every seed's curve, and keep it for the CSV file."""
        self.numbers[label, name] = found = sample(None if c is None else of(c) for c in self.curves(label))
        return found

    def count(self, label: str, name: str, of: Callable[[RunRecord], float | None]) -> Sample:
        """Measure something on every seed's run record, and keep it for the CSV file."""
        self.numbers[label, name] = found = sample(None if run is None else of(run) for run in self.runs[label])
        return found

    def time_to(self, label: str, target: float) -> Sample:
        """Virtual seconds until the mean of the servers first reached ``target``."""
        return self.measure(label, f"time to {target:g} (s)", lambda c: hit[0] if (hit := c.reached(target)) else None)

    def held_from(self, label: str, target: float) -> Sample:
        """Virtual seconds until the mean of the servers reached ``target`` and stayed there."""
        return self.measure(label, f"time to stay at {target:g} (s)", lambda c: h[0] if (h := c.held(target)) else None)

    def averaged_to(self, label: str, target: float) -> Sample:
        """Virtual seconds until the average of the servers' models first reached ``target``."""
        name = f"time to {target:g}, averaged model (s)"
        return self.measure(label, name, lambda c: hit[0] if (hit := c.reached(target, c.averaged)) else None)

    def updates_to(self, label: str, target: float) -> Sample:
        """Client updates until the mean of the servers first reached ``target``."""
        return self.measure(label, f"updates to {target:g}", lambda c: hit[1] if (hit := c.reached(target)) else None)

    def final(self, label: str) -> Sample:
        """The last score, mean of the servers."""
        return self.measure(label, "final score", lambda c: c.mean[-1])


@dataclass(frozen=True, slots=True)
class Item:
    """One table or figure of the paper."""

    name: str
    paper: str
    """Where it stands in the paper."""
    shows: str
    """What it shows there."""
    task: str
    """The dataset; a profile says how much of it."""
    runs: Mapping[str, Settings]
    """Every run's name and what is special about it."""
    tell: Callable[[Results], Section]
    minutes: tuple[float, float]
    """How long the profiles quick and full take on two cores, alone, estimated from what an update costs there."""
    quick: Settings = field(default_factory=dict)
    full: Settings = field(default_factory=dict)
    longer: Mapping[str, float] = field(default_factory=dict)
    """By what factor some runs are longer than the others."""
    validation: bool = False
    """Whether models are judged by held-back training images instead of test images."""
