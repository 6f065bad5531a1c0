"""What an item of the reproduction is: runs to make, and what to say about them.

An item declares its runs as settings laid over the reading of the paper (:mod:`spyker_lab.paper.paper_settings`), and
has one function that turns the finished runs into a section: tables, claims, a figure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from matplotlib.figure import Figure

from spyker.algorithms.fedasync import FedAsync
from spyker.algorithms.fedavg import FedAvg
from spyker.algorithms.hierfavg import Edge
from spyker.algorithms.spyker import Spyker
from spyker.algorithms.sync_spyker import SyncSpyker
from spyker.plots.curves import Curve, curve
from spyker.plots.samples import Range, SeedSample, greater_than, sample
from spyker.records import RunRecord
from spyker_lab.paper.claims import Claim
from spyker_lab.paper.speed import Gain

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
    fewer_seeds: Mapping[str, int] = field(default_factory=dict)
    """By item, where fewer must do."""
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
    numbers: Mapping[tuple[str, str], SeedSample]
    """Everything measured, by run and measure, for the CSV file."""
    notes: str = ""
    gains: Mapping[str, Gain] = field(default_factory=dict)
    """Where Spyker and FedAsync were compared: what was to be expected, and what came of it."""
    tokens: Mapping[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    """By network and run of Spyker, how often the token arrived, and how often that started a synchronisation at once.
    """


class Results:
    """The finished runs of an item, by label; one run per seed, ``None`` where training diverged."""

    def __init__(self, runs: Mapping[str, Sequence[RunRecord | None]], settings: Mapping[str, Settings]) -> None:
        self.runs, self.settings = runs, settings
        self._curves: dict[str, list[Curve | None]] = {}
        self.numbers: dict[tuple[str, str], SeedSample] = {}

    @property
    def labels(self) -> list[str]:
        """The runs' names."""
        return list(self.runs)

    def curves(self, label: str) -> list[Curve | None]:
        """The evaluations of a run, once per seed."""
        if label not in self._curves:
            self._curves[label] = [None if run is None else curve(run) for run in self.runs[label]]
        return self._curves[label]

    def measure(self, label: str, name: str, of: Callable[[Curve], float | None]) -> SeedSample:
        """Measure something on every seed's curve, and keep it for the CSV file."""
        self.numbers[label, name] = found = sample(None if c is None else of(c) for c in self.curves(label))
        return found

    def count(self, label: str, name: str, of: Callable[[RunRecord], float | None]) -> SeedSample:
        """Measure something on every seed's run record, and keep it for the CSV file."""
        self.numbers[label, name] = found = sample(None if run is None else of(run) for run in self.runs[label])
        return found

    def _until(
        self,
        label: str,
        name: str,
        targets: float | Sequence[float | None],
        of: Callable[[Curve, float], tuple[float, int] | None] = Curve.reached,
        *,
        updates: bool = False,
    ) -> SeedSample:
        """When targets were reached, one for all seeds or one for each; if not, that is beyond the end of the run."""

        def when(curve: Curve | None, target: float | None) -> float | Range | None:
            if target is None:
                return None
            if curve is None:  # it diverged
                return greater_than(0.0 if updates else float(str(self.settings[label]["duration"])))
            hit = of(curve, target)
            if hit is None:
                return greater_than(float(curve.updates[-1] if updates else curve.time[-1]))
            return float(hit[int(updates)])

        curves = self.curves(label)
        each = [targets] * len(curves) if isinstance(targets, float) else targets
        self.numbers[label, name] = found = sample(when(c, target) for c, target in zip(curves, each, strict=True))
        return found

    def time_to(self, label: str, target: float) -> SeedSample:
        """Virtual seconds until the mean of the servers first reached ``target``."""
        return self._until(label, f"time to {target:g} (s)", target)

    def held_from(self, label: str, target: float) -> SeedSample:
        """Virtual seconds until the mean of the servers reached ``target`` and stayed there."""
        return self._until(label, f"time to stay at {target:g} (s)", target, Curve.held)

    def averaged_to(self, label: str, target: float) -> SeedSample:
        """Virtual seconds until the average of the servers' models first reached ``target``."""
        name = f"time to {target:g}, averaged model (s)"
        return self._until(label, name, target, lambda c, target: c.reached(target, c.averaged))

    def updates_to(self, label: str, target: float) -> SeedSample:
        """Client updates until the mean of the servers first reached ``target``."""
        return self._until(label, f"updates to {target:g}", target, updates=True)

    def to_level(self, label: str, levels: SeedSample, *, updates: bool = False) -> SeedSample:
        """Time, or updates, until the mean of the servers first reached each seed's own level."""
        name = f"{'updates' if updates else 'time'} to the common level"
        return self._until(label, name, levels.numbers, updates=updates)

    def stays(self, target: float) -> bool:
        """Whether the runs go on when they have reached ``target``, so that they show whether they stay there."""
        return all(s.get("evaluation.stop-at", math.inf) != target for s in self.settings.values())

    def times(self, label: str, targets: Sequence[float]) -> list[str]:
        """The cells of a table under :meth:`heads`."""
        cells = []
        for target in targets:
            cells.append(self.time_to(label, target).text(".3g", " s"))
            if self.stays(target):
                cells.append(self.held_from(label, target).text(".3g", " s"))
        return cells

    def heads(self, targets: Sequence[float]) -> list[str]:
        """The heads of :meth:`times`."""
        return [head for t in targets for head in (f"time to {t:.0%}", *(["and stays"] if self.stays(t) else []))]

    def common_end(self) -> SeedSample:
        """For each seed, when the first of the runs ended."""
        seeds = zip(*(self.curves(label) for label in self.labels), strict=True)
        return sample(min((c.time[-1] for c in curves if c is not None), default=None) for curves in seeds)

    def at(self, label: str, moments: SeedSample, *, averaged: bool = False) -> SeedSample:
        """The last score up to a moment, of each seed's own: mean of the servers, or of the average of their models."""

        def score(curve: Curve | None, moment: float | None) -> float | None:
            if curve is None or moment is None:
                return None
            scores = curve.averaged if averaged else curve.mean
            return [s for t, s in zip(curve.time, scores, strict=True) if t <= moment][-1]

        found = sample(score(c, t) for c, t in zip(self.curves(label), moments.numbers, strict=True))
        self.numbers[label, "score at the common end" + (", averaged model" if averaged else "")] = found
        return found

    def final(self, label: str) -> SeedSample:
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
    minutes: Mapping[str, float]
    """By profile, how long it takes on two cores, alone; a profile that is not named leaves the item out of ``all``."""
    sizes: Mapping[str, Settings] = field(default_factory=dict)
    """By profile, what its runs have in common."""
    scaled: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """By what factors some settings of some runs are larger than that."""
    validation: bool = False
    """Whether models are judged by held-back training images instead of test images."""
