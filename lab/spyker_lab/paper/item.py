"""Items of the reproduction: their runs, and the evaluation of these runs.

An item declares its runs as settings that override the reading of the paper (:mod:`spyker_lab.paper.paper_settings`),
and a function that turns the finished runs into a section: tables, claims, a figure.
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
from spyker.plots.samples import Range, SeedSample, sample
from spyker.records import RunRecord
from spyker_lab.paper.claims import Claim
from spyker_lab.paper.comparisons import greater_than
from spyker_lab.paper.speed import Gain

Settings = Mapping[str, object]
NOT_IN_PAPER = "not in the paper"
ALGORITHM_TITLES = {a.name: a.title for a in (Spyker, SyncSpyker, FedAsync, Edge, FedAvg)}  # of the paper


@dataclass(frozen=True, slots=True)
class Profile:
    """The size of a reproduction."""

    name: str
    seeds: int
    says: str
    """Description of its sizes."""
    tasks: Mapping[str, Settings] = field(default_factory=dict)
    """Settings by task."""
    fewer_seeds: Mapping[str, int] = field(default_factory=dict)
    """Number of seeds by item, if smaller."""
    validation: Settings = field(default_factory=dict)
    """Settings with held-out training images, for items that choose among settings."""
    settings: Settings = field(default_factory=dict)
    """Settings that override everything else."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table whose first column names the rows."""

    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    prose: bool = False
    """Whether the other columns are text rather than numbers."""

    def markdown(self) -> str:
        """Return the table as Markdown."""
        rule = ["---"] + ["---" if self.prose else "---:"] * (len(self.heads) - 1)
        lines = ["| " + " | ".join(cells) + " |\n" for cells in (self.heads, rule, *self.rows)]
        return (f"{self.title}\n\n" if self.title else "") + "".join(lines)


@dataclass(frozen=True, slots=True)
class Section:
    """The results of an item."""

    claims: list[Claim]
    tables: list[Table]
    figure: Figure
    caption: str
    numbers: Mapping[tuple[str, str], SeedSample]
    """All measurements by run and measure, for the CSV file."""
    notes: str = ""
    gains: Mapping[str, Gain] = field(default_factory=dict)
    """Predicted and measured gains of Spyker over FedAsync."""
    tokens: Mapping[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    """Token arrivals, and those that started an exchange at once, by network and run of Spyker."""


class Results:
    """The finished runs of an item by label, one per seed; ``None`` for a diverged run."""

    def __init__(self, runs: Mapping[str, Sequence[RunRecord | None]], settings: Mapping[str, Settings]) -> None:
        self.runs, self.settings = runs, settings
        self._curves: dict[str, list[Curve | None]] = {}
        self.numbers: dict[tuple[str, str], SeedSample] = {}

    @property
    def labels(self) -> list[str]:
        """The labels of the runs."""
        return list(self.runs)

    def curves(self, label: str) -> list[Curve | None]:
        """Return the curves of a label, one per seed."""
        if label not in self._curves:
            self._curves[label] = [None if run is None else curve(run) for run in self.runs[label]]
        return self._curves[label]

    def measure(self, label: str, name: str, of: Callable[[Curve], float | None]) -> SeedSample:
        """Measure every seed's curve, and store the result for the CSV file."""
        self.numbers[label, name] = found = sample(None if c is None else of(c) for c in self.curves(label))
        return found

    def count(self, label: str, name: str, of: Callable[[RunRecord], float | None]) -> SeedSample:
        """Measure every seed's run record, and store the result for the CSV file."""
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
        """Measure when targets were reached, one for all seeds or one per seed; the end of the run is a lower bound."""

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
        """Return the virtual seconds until the mean over servers first reached ``target``."""
        return self._until(label, f"time to {target:g} (s)", target)

    def held_from(self, label: str, target: float) -> SeedSample:
        """Return the virtual seconds until the mean over servers reached ``target`` and stayed there."""
        return self._until(label, f"time to stay at {target:g} (s)", target, Curve.held)

    def averaged_to(self, label: str, target: float) -> SeedSample:
        """Return the virtual seconds until the averaged model first reached ``target``."""
        name = f"time to {target:g}, averaged model (s)"
        return self._until(label, name, target, lambda c, target: c.reached(target, c.averaged))

    def updates_to(self, label: str, target: float) -> SeedSample:
        """Return the client updates until the mean over servers first reached ``target``."""
        return self._until(label, f"updates to {target:g}", target, updates=True)

    def to_level(self, label: str, levels: SeedSample, *, updates: bool = False) -> SeedSample:
        """Return the time, or updates, until the mean over servers first reached each seed's own level."""
        name = f"{'updates' if updates else 'time'} to the common level"
        return self._until(label, name, levels.numbers, updates=updates)

    def stays(self, target: float) -> bool:
        """Return whether the runs continue after reaching ``target``, and so show whether they stay there."""
        return all(s.get("evaluation.stop-at", math.inf) != target for s in self.settings.values())

    def times(self, label: str, targets: Sequence[float]) -> list[str]:
        """Return the cells of a table below :meth:`heads`."""
        cells = []
        for target in targets:
            cells.append(self.time_to(label, target).text(".3g", " s"))
            if self.stays(target):
                cells.append(self.held_from(label, target).text(".3g", " s"))
        return cells

    def heads(self, targets: Sequence[float]) -> list[str]:
        """Return the headings of :meth:`times`."""
        return [head for t in targets for head in (f"time to {t:.0%}", *(["and stays"] if self.stays(t) else []))]

    def common_end(self) -> SeedSample:
        """Return for each seed the time at which the first run ended."""
        seeds = zip(*(self.curves(label) for label in self.labels), strict=True)
        return sample(min((c.time[-1] for c in curves if c is not None), default=None) for curves in seeds)

    def at(self, label: str, moments: SeedSample, *, averaged: bool = False) -> SeedSample:
        """Return the last score up to each seed's own time: the mean over servers, or of the averaged model."""

        def score(curve: Curve | None, moment: float | None) -> float | None:
            if curve is None or moment is None:
                return None
            scores = curve.averaged if averaged else curve.mean
            return [s for t, s in zip(curve.time, scores, strict=True) if t <= moment][-1]

        found = sample(score(c, t) for c, t in zip(self.curves(label), moments.numbers, strict=True))
        self.numbers[label, "score at the common end" + (", averaged model" if averaged else "")] = found
        return found

    def final(self, label: str) -> SeedSample:
        """Return the final score, the mean over servers."""
        return self.measure(label, "final score", lambda c: c.mean[-1])


@dataclass(frozen=True, slots=True)
class Item:
    """One table or figure of the paper."""

    name: str
    paper: str
    """Its place in the paper."""
    shows: str
    """Its content."""
    task: str
    """The dataset; the profile sets its size."""
    runs: Mapping[str, Settings]
    """Settings of each run, by label."""
    tell: Callable[[Results], Section]
    minutes: Mapping[str, float]
    """Duration on two cores by profile; a profile that is not listed excludes the item from ``all``."""
    sizes: Mapping[str, Settings] = field(default_factory=dict)
    """Common settings of its runs by profile."""
    scaled: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Factors for some settings of some runs."""
    validation: bool = False
    """Whether models are evaluated on held-out training images instead of test images."""
