"""The runs of a race: the searches, and one run per entry, world and seed. Finished runs are read from disk."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from spyker.algorithms.builtin import OF_THE_PAPER
from spyker.config.algorithms import find_algorithm
from spyker.config.scenario import Scenario, load
from spyker.sweeps.runner import with_seeds
from spyker.tasks.registry import resolve
from spyker_lab.algorithms.hierfavgm import HierFAVGM
from spyker_lab.chains import Chain
from spyker_lab.paper.item import Settings
from spyker_lab.race.board import Cell, read_cell
from spyker_lab.race.search import Trial, best, search
from spyker_lab.race.worlds import IMBALANCE, OURS, STAY, TWO_LABELS, Course, RaceWorld

NEAR = 2.0  # algorithms within this factor of the best time in a world of the paper also run in other worlds


@dataclass(frozen=True, slots=True)
class RaceEntry:
    """An algorithm with settings."""

    label: str
    algorithm: str
    settings: Settings
    to_the_end: bool = False
    """Whether it runs up to the horizon instead of the target."""


@cache
def title(algorithm: str) -> str:
    """Return the title of an algorithm in tables."""
    return find_algorithm(algorithm).title


def defaults_label() -> str:
    """Return the label of Stride with default settings."""
    return f"{title(OURS)}, defaults"


def end_label() -> str:
    """Return the label of Stride's runs up to the horizon."""
    return f"{title(OURS)}, to the end"


class Race:
    """A race in the folder ``root``, finished or in progress."""

    def __init__(
        self,
        course: Course,
        worlds: Sequence[RaceWorld],
        algorithms: Sequence[str],
        root: Path,
        trials: int | None = None,
        seeds: int | None = None,
    ) -> None:
        """Create the race; ``trials`` and ``seeds`` override those of the course and its worlds."""
        self.course, self.worlds, self.algorithms, self.root = course, worlds, algorithms, root
        self.trials, self.seeds = trials or course.trials, seeds
        self.searches: dict[tuple[str, str], Chain[list[Trial]]] = {}
        for where in dict.fromkeys(course.worlds[world.takes].name for world in worlds):
            for algorithm in algorithms:
                steps = search(algorithm, course.worlds[where], course, self.trials)
                self.searches[algorithm, where] = Chain(steps, root)
        self._cells: dict[tuple[str, str], Cell] = {}

    # --- Runs --------------------------------------------------------------------------------------------------------

    def tuned(self, algorithm: str, world: RaceWorld) -> Settings | None:
        """Return the best settings of the search for a world; ``None`` while it is in progress."""
        trials = self.searches[algorithm, world.takes].result
        return None if trials is None else best(trials).settings

    def entries(self, world: RaceWorld) -> dict[str, RaceEntry]:
        """Return the entries in a world by label, without algorithms whose search is in progress."""
        found = {}
        for algorithm in self.field(world):
            settings = self.tuned(algorithm, world)
            if settings is not None:
                found[title(algorithm)] = RaceEntry(title(algorithm), algorithm, settings)
                if algorithm == OURS and world.name in (TWO_LABELS, IMBALANCE):
                    found[end_label()] = RaceEntry(end_label(), OURS, settings, to_the_end=True)
        if OURS in self.algorithms:
            found[defaults_label()] = RaceEntry(defaults_label(), OURS, {})
        return found

    def field(self, world: RaceWorld) -> Sequence[str]:
        """Return the algorithms that run in a world.

        All algorithms run in the worlds of the paper and in those marked ``everybody``. In other worlds those run that
        were near the best in a world of the paper; on other tasks Stride, the best of the paper's five and the best of
        the other rivals. HierFAVGM always runs. While this is undecided, all algorithms are returned.
        """
        paper = [w for w in self.worlds if w.stage == "paper"]
        if world.stage == "paper" or world.everybody or not paper:
            return self.algorithms
        times: dict[str, list[float]] = {}
        for algorithm in self.algorithms:
            cells = [self.cell(w, title(algorithm)) for w in paper]
            if any(cell is None for cell in cells):
                return self.algorithms
            times[algorithm] = [cell.stays.mean().value for cell in cells if cell is not None]
        ranked = sorted(times, key=lambda a: math.prod(times[a]))
        there = {OURS, HierFAVGM.name, *[a for a in ranked if a in OF_THE_PAPER and a != OURS][:1]}
        if world.stage == "tasks":
            there |= set([a for a in ranked if a not in there and a not in OF_THE_PAPER][:1])
        else:
            fastest = [min(column) for column in zip(*times.values(), strict=True)]
            there |= {a for a, ts in times.items() if any(t <= NEAR * b for t, b in zip(ts, fastest, strict=True))}
        return [a for a in self.algorithms if a in there]

    def scenarios(self, world: RaceWorld, entry: RaceEntry) -> Sequence[Scenario]:
        """Return the scenarios of an entry in a world, one per seed."""
        ending: Settings = {"duration": world.horizon}
        if not entry.to_the_end:
            ending = {
                "duration": world.horizon + STAY,
                "evaluation.stop-at": world.target,
                "evaluation.stop-after": STAY,
            }
        layers: list[Mapping[str, object]] = [world.settings, {"algorithm": entry.algorithm}, entry.settings, ending]
        merged = {key: value for layer in layers for key, value in layer.items()}
        return with_seeds(resolve(load(None, merged)), self.seeds or world.seeds)

    def stage(self, name: str) -> list[Scenario]:
        """Return all scenarios of a stage."""
        return [
            scenario
            for world in self.worlds
            if world.stage == name
            for entry in self.entries(world).values()
            for scenario in self.scenarios(world, entry)
        ]

    # --- Results -----------------------------------------------------------------------------------------------------

    def cell(self, world: RaceWorld, label: str) -> Cell | None:
        """Return the results of an entry in a world; ``None`` if runs are missing."""
        key = world.name, label
        if key not in self._cells:
            entry = self._entry(world, label)
            cell = None if entry is None else read_cell(self.scenarios(world, entry), self.root, world)
            if cell is None:
                return None
            self._cells[key] = cell
        return self._cells[key]

    def _entry(self, world: RaceWorld, label: str) -> RaceEntry | None:
        """Return an entry by its label, without :meth:`field`, which itself depends on results."""
        if label == defaults_label():
            return RaceEntry(label, OURS, {})
        algorithm = OURS if label == end_label() else next((a for a in self.algorithms if title(a) == label), None)
        settings = None if algorithm is None else self.tuned(algorithm, world)
        if algorithm is None or settings is None:
            return None
        return RaceEntry(label, algorithm, settings, to_the_end=label == end_label())
