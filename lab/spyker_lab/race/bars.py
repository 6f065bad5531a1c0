"""The goals of the race and whether they are met; all algorithms are tuned unless a goal says otherwise."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from spyker.algorithms.builtin import OF_THE_PAPER
from spyker_lab.algorithms.hierfavgm import HierFAVGM
from spyker_lab.race.board import Cell
from spyker_lab.race.intervals import IntervalEstimate, interval, ratio
from spyker_lab.race.lineup import Race, defaults_label, end_label, title
from spyker_lab.race.worlds import IMBALANCE, OURS, ROOM, TWO_LABELS, RaceWorld

PAPERS_SHARE, MOMENTUM_SHARE, ROOM_SHARE, DEFAULTS_SHARE, POINTS_LOST = 0.5, 0.8, 1.25, 1.5, 1.0


@dataclass(frozen=True, slots=True)
class Criterion:
    """A goal and its measurement; ``met`` is ``None`` while runs are missing."""

    name: str
    promise: str
    measured: str
    met: bool | None


@dataclass(frozen=True, slots=True)
class Standing:
    """The results of Stride and its best rivals in one world; ``None`` if not run."""

    world: RaceWorld
    ours: Cell
    papers: tuple[str, Cell] | None
    """The best of the paper's five."""
    momentum: Cell | None
    other: tuple[str, Cell] | None
    """The best of the other rivals."""
    defaults: Cell | None

    @property
    def rival(self) -> tuple[str, Cell] | None:
        """The fastest rival of any kind."""
        known = [pair for pair in (self.papers, self.other) if pair is not None]
        if self.momentum is not None:
            known.append((HierFAVGM.title, self.momentum))
        return min(known, key=lambda pair: pair[1].stays.mean().value, default=None)


def standing(race: Race, world: RaceWorld) -> Standing | None:
    """Return the standing in a world, or ``None`` if Stride was not run there."""
    ours = race.cell(world, title(OURS))
    if ours is None:
        return None

    def quickest(algorithms: Sequence[str]) -> tuple[str, Cell] | None:
        cells = [(title(a), cell) for a in algorithms if (cell := race.cell(world, title(a))) is not None]
        return min(cells, key=lambda pair: pair[1].stays.mean().value, default=None)

    rivals = [a for a in race.field(world) if a != OURS]
    others = [a for a in rivals if a not in OF_THE_PAPER and a != HierFAVGM.name]
    return Standing(
        world,
        ours,
        quickest([a for a in rivals if a in OF_THE_PAPER]),
        race.cell(world, HierFAVGM.title) if HierFAVGM.name in rivals else None,
        quickest(others),
        race.cell(world, defaults_label()),
    )


def bars(race: Race) -> list[Criterion]:
    """Return all goals."""
    places = [place for world in race.worlds if (place := standing(race, world)) is not None]
    return [
        against_paper(places),
        never_slower(places),
        against_momentum(places),
        against_room(race),
        against_tuning(places),
        imbalance(race),
    ]


def median_bar(name: str, promise: str, ratios: Sequence[IntervalEstimate], limit: float) -> Criterion:
    """Return a goal for the median over worlds."""
    if not ratios:
        return Criterion(name, promise, "not run yet", None)
    middle = statistics.median(r.value for r in ratios)
    return Criterion(name, promise, f"{middle:.2f}; {count(ratios, limit)} worlds are within it", middle <= limit)


def count(ratios: Sequence[IntervalEstimate], limit: float) -> str:
    """Describe how many ratios are within a limit."""
    return f"{sum(r.value <= limit for r in ratios)} of {len(ratios)}"


def compact(places: Sequence[Standing]) -> list[Standing]:
    """Return the standings that medians are taken over: worlds of the same task and size."""
    return [place for place in places if place.world.compact]


def against_paper(places: Sequence[Standing]) -> Criterion:
    """Return the first half of goal (a)."""
    promise = f"time to the target at most {PAPERS_SHARE:g} of the best of the paper's five, median over worlds"
    ratios = [ratio(place.ours.stays, place.papers[1].stays) for place in compact(places) if place.papers]
    return median_bar("a", promise, ratios, PAPERS_SHARE)


def never_slower(places: Sequence[Standing]) -> Criterion:
    """Return the second half of goal (a)."""
    promise = "in no world slower than the best rival of any kind, beyond the confidence interval"
    raced = [(place, *place.rival) for place in places if place.rival is not None]
    if not raced:
        return Criterion("a", promise, "not run yet", None)
    lost = []
    for place, rival, cell in raced:
        r = ratio(place.ours.stays, cell.stays)
        if (r.value if r.low is None else r.low) > 1:
            lost.append(f"{place.world.title}: {r.between()} of {rival}'s")
    return Criterion("a", promise, "; ".join(lost) or f"true in all {len(raced)} worlds", not lost)


def against_momentum(places: Sequence[Standing]) -> Criterion:
    """Return goal (b)."""
    promise = f"at most {MOMENTUM_SHARE:g} of {HierFAVGM.title}, HierFAVG with momentum, median over worlds"
    ratios = [ratio(place.ours.stays, place.momentum.stays) for place in compact(places) if place.momentum]
    return median_bar("b", promise, ratios, MOMENTUM_SHARE)


def against_room(race: Race) -> Criterion:
    """Return goal (c)."""
    promise = f"with the paper's latencies at most {ROOM_SHARE:g} times the best algorithm in one room, two labels"
    world = next((world for world in race.worlds if world.name == TWO_LABELS), None)
    ours = None if world is None else race.cell(world, title(OURS))
    limit = best_in_room(race)
    if ours is None or limit is None:
        return Criterion("c", promise, "not run yet", None)
    label, cell = limit
    r = ratio(ours.stays, cell.stays)
    return Criterion(
        "c", promise, f"{r.between()} of {label}'s {cell.stays.mean().around(' s')}", r.value <= ROOM_SHARE
    )


def best_in_room(race: Race) -> tuple[str, Cell] | None:
    """Return the fastest algorithm in the world without latency, which is the limit."""
    room = next((world for world in race.worlds if world.name == ROOM), None)
    if room is None:
        return None
    cells = [(title(a), cell) for a in race.field(room) if (cell := race.cell(room, title(a))) is not None]
    return min(cells, key=lambda pair: pair[1].stays.mean().value, default=None)


def against_tuning(places: Sequence[Standing]) -> Criterion:
    """Return goal (d)."""
    promise = f"untuned defaults at most {DEFAULTS_SHARE:g} times our own tuned time, in every world"
    ratios = {p.world.title: ratio(p.defaults.stays, p.ours.stays) for p in places if p.defaults is not None}
    if not ratios:
        return Criterion("d", promise, "not run yet", None)
    worst = max(ratios, key=lambda name: ratios[name].value)
    measured = f"{count(list(ratios.values()), DEFAULTS_SHARE)} worlds; worst {ratios[worst].between()} ({worst})"
    return Criterion("d", promise, measured, all(r.value <= DEFAULTS_SHARE for r in ratios.values()))


def imbalance(race: Race) -> Criterion:
    """Return goal (e)."""
    promise = f"most clients in one region: at most {POINTS_LOST:g} point of final accuracy lost against an even split"
    known = {world.name: world for world in race.worlds}
    cells = [race.cell(known[name], end_label()) for name in (TWO_LABELS, IMBALANCE) if name in known]
    ends = [cell.final for cell in cells if cell is not None]
    if len(ends) < 2:
        return Criterion("e", promise, "not run yet", None)
    lost = [
        100 * (even - uneven) for even, uneven in zip(*ends, strict=False) if even is not None and uneven is not None
    ]
    if not lost:
        return Criterion("e", promise, "every training diverged", False)
    mean, half = interval(lost)
    spread = "" if half is None else f" ± {half:.2g}"
    return Criterion("e", promise, f"{mean:.2f}{spread} points", mean <= POINTS_LOST)
