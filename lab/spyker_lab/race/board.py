"""The results of an entry in a world, read from its finished runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from spyker.config.scenario import Scenario
from spyker.plots.curves import Curve, curve
from spyker.records import RunRecord
from spyker.sweeps.runner import folder_of, is_diverged, is_finished
from spyker_lab.race.intervals import SeedTimes
from spyker_lab.race.worlds import STAY, RaceWorld

ROUNDING = 1e-9  # seconds


@dataclass(frozen=True, slots=True)
class Cell:
    """The results of one entry in one world, by seed; the curve of a diverged run is ``None``."""

    seeds: tuple[int, ...]
    curves: tuple[Curve | None, ...]
    first: SeedTimes
    """When the mean over servers first reached the target."""
    stays: SeedTimes
    """When it reached the target and stayed there."""

    @property
    def final(self) -> list[float | None]:
        """The final scores."""
        return [None if c is None else c.mean[-1] for c in self.curves]


def read_cell(scenarios: Sequence[Scenario], root: Path, world: RaceWorld) -> Cell | None:
    """Read the results of an entry; ``None`` if runs are missing."""
    folders = [folder_of(scenario, root) for scenario in scenarios]
    if not all(is_finished(folder) or is_diverged(folder) for folder in folders):
        return None
    curves = tuple(curve(RunRecord(folder)) if is_finished(folder) else None for folder in folders)
    first = [None if c is None or (hit := c.reached(world.target)) is None else hit[0] for c in curves]
    return Cell(
        tuple(scenario.seed for scenario in scenarios),
        curves,
        SeedTimes(tuple(t if t is not None and t <= world.horizon else None for t in first), world.horizon),
        SeedTimes(tuple(None if c is None else stays(c, world.target) for c in curves), world.horizon),
    )


def stays(c: Curve, target: float, seconds: float = STAY) -> float | None:
    """Return the first time from which on the target holds for ``seconds``, or ``None``."""
    since: float | None = None
    for t, score in zip(c.time, c.mean, strict=True):
        if not c.good(score, target):
            since = None
        elif since is None:
            since = t
        if since is not None and t - since >= seconds - ROUNDING:
            return since
    return None
