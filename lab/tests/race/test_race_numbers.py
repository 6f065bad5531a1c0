"""What the race makes of times: by hand."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from spyker.plots.curves import Curve
from spyker_lab.race.bars import bars, never_slower, standing
from spyker_lab.race.board import Cell, stays
from spyker_lab.race.intervals import SeedTimes, difference, ratio
from spyker_lab.race.lineup import Race, defaults_label, end_label, title
from spyker_lab.race.search import PENALTY, Trial, best, crossing
from spyker_lab.race.worlds import IID, IMBALANCE, OURS, ROOM, TWO_LABELS, Course, RaceWorld


def rising(*scores: float, higher_is_better: bool = True, interval: float = 1.0) -> Curve:
    """A curve with one evaluation per second."""
    time, nothing = [i * interval for i in range(len(scores))], [0] * len(scores)
    points = list(scores)
    return Curve("accuracy", higher_is_better, time, nothing, nothing, points, points, points, points, 0, True)


def test_the_interval_of_a_mean_is_students() -> None:
    # mean 4, deviation 2, n 3: 4.3027 · 2 / √3
    found = SeedTimes((2.0, 4.0, 6.0), 15.0).mean()
    assert (found.value, found.mark) == (4.0, "")
    assert found.low == pytest.approx(4 - 4.30265 * 2 / math.sqrt(3), abs=1e-4)
    assert found.high == pytest.approx(4 + 4.30265 * 2 / math.sqrt(3), abs=1e-4)
    assert found.around(" s") == "4 ± 5 s"


def test_ratios_are_paired_and_on_logarithms() -> None:
    # 1/2, 1/2 and 1/8: logarithms to base 2 are -1, -1, -3; mean -5/3, deviation 2/√3
    found = ratio(SeedTimes((1.0, 2.0, 1.0), 15.0), SeedTimes((2.0, 4.0, 8.0), 15.0))
    half = 4.30265 * (2 / math.sqrt(3)) / math.sqrt(3)
    assert found.value == pytest.approx(2 ** (-5 / 3))
    assert found.low == pytest.approx(2 ** (-5 / 3 - half), rel=1e-4)
    assert found.high == pytest.approx(2 ** (-5 / 3 + half), rel=1e-4)
    less = difference(SeedTimes((1.0, 2.0, 1.0), 15.0), SeedTimes((2.0, 4.0, 8.0), 15.0))
    assert less.value == pytest.approx(-10 / 3)


def test_seeds_that_only_one_has_are_left_out() -> None:
    assert ratio(SeedTimes((1.0, 3.0, 100.0), 150.0), SeedTimes((2.0, 6.0), 15.0)).value == pytest.approx(0.5)
    assert ratio(SeedTimes((1.0,), 15.0), SeedTimes((2.0,), 15.0)).between() == "0.50"


def test_what_was_not_reached_counts_as_the_horizon_and_is_marked() -> None:
    there, late = SeedTimes((3.0, 3.0), 15.0), SeedTimes((9.0, None), 15.0)
    assert late.mean().around(" s") == "> 12 s"
    assert ratio(there, late).between() == "< 0.26"
    assert SeedTimes((None, None), 15.0).mean().around(" s") == "> 15 s"
    assert (ratio(there, late).mark, ratio(late, there).mark, ratio(late, late).mark) == ("<", ">", "?")
    assert ratio(there, late).value == pytest.approx(math.sqrt(3 / 9 * 3 / 15))
    assert ratio(late, late).between() == "?"


def test_a_target_counts_from_when_it_held_for_long_enough() -> None:
    assert stays(rising(0.1, 0.9, 0.9, 0.9), 0.9, 2.0) == 1
    assert stays(rising(0.1, 0.9, 0.9, 0.8, 0.9, 0.9, 0.9), 0.9, 2.0) == 4
    assert stays(rising(0.1, 0.9, 0.9), 0.9, 2.0) is None, "the run ended before it was decided"
    assert stays(rising(0.1, 0.2), 0.9, 2.0) is None
    assert stays(rising(30.0, 20.0, 19.0, 18.0, higher_is_better=False), 20.0, 2.0) == 1
    assert stays(rising(*[0.0] * 3, *[1.0] * 21, interval=0.1), 0.9, 2.0) == pytest.approx(0.3)


def test_a_trial_is_worth_the_time_at_which_the_straight_line_crosses() -> None:
    assert crossing(rising(0.1, 0.8, 1.0), 0.9) == pytest.approx(1.5)
    assert crossing(rising(0.95), 0.9) == 0.0
    slower, failed = Trial({}, 1.6, 2.0, 15.0), Trial({}, 2.25 + PENALTY * 0.1, None, 2.25)
    assert best([failed, slower, Trial({}, 1.5, 2.0, 2.25)]).value == 1.5


class Told(Race):
    """A race whose results are told instead of run: mean times per world and label."""

    def __init__(self, times: Mapping[str, Mapping[str, Sequence[float | None]]], algorithms: Sequence[str]) -> None:
        self.times, self.algorithms, self.seeds = times, algorithms, None
        self.worlds = [
            RaceWorld(name, name, "", {}, TWO_LABELS, "paper" if name in (IID, TWO_LABELS) else "others")
            for name in times
        ]
        self.course = Course("full", "", {world.name: world for world in self.worlds}, 1)

    def cell(self, world: RaceWorld, label: str) -> Cell | None:
        found = self.times[world.name].get(label)
        if found is None:
            return None
        if label == end_label():
            curves = tuple(rising(0.0, final or 0.0) for final in found)
            return Cell(tuple(range(len(found))), curves, SeedTimes(tuple(found), 15.0), SeedTimes(tuple(found), 15.0))
        numbers = SeedTimes(tuple(found), 15.0)
        return Cell(tuple(range(len(found))), (None,) * len(found), numbers, numbers)


FAST, SLOW = [2.0, 2.0, 2.0], [8.0, 8.0, 8.0]
MINE = title(OURS)


def test_beyond_the_papers_worlds_run_those_that_were_near_in_one_of_them() -> None:
    names = [OURS, *(a for a in ("sync-spyker", "fedasync", "fedavg", "hierfavg") if a != OURS)]
    paper = {title(a): SLOW for a in names} | {MINE: FAST}
    times = {
        IID: paper | {"FedAsync": [4.0] * 3},
        TWO_LABELS: paper | {"Sync-Spyker": [5.0] * 3},
        ROOM: {MINE: FAST},
    }
    race = Told(times, names)
    assert list(race.field(race.worlds[0])) == names
    # FedAsync is within twice the best in one world. Sync-Spyker, 2.5 times, is the best of nobody.
    assert list(race.field(race.worlds[2])) == [OURS, "fedasync"]
    task = replace(race.worlds[2], stage="tasks")
    assert list(race.field(task)) == [OURS, "fedasync"]
    times[IID].pop("FedAvg")
    assert list(race.field(race.worlds[2])) == names, "not decided yet"


def told(**changes: Mapping[str, Sequence[float | None]]) -> Told:
    """Three worlds in which we take 2 s, and FedAsync four times that."""
    ends = {end_label(): [0.95, 0.94, 0.96]}
    world = {MINE: FAST, "FedAsync": SLOW, defaults_label(): [2.5, 2.5, 2.5]}
    times: dict[str, Mapping[str, Sequence[float | None]]] = {
        IID: world,
        TWO_LABELS: world | ends,
        IMBALANCE: world | ends,
        ROOM: world,
    }
    return Told(
        {name: {**table, **changes.get(name.replace("-", "_"), {})} for name, table in times.items()},
        [OURS, "fedasync"],
    )


def verdicts(race: Race) -> dict[str, list[bool | None]]:
    found: dict[str, list[bool | None]] = {}
    for bar in bars(race):
        found.setdefault(bar.name, []).append(bar.met)
    return found


def test_bars_that_are_met() -> None:
    assert verdicts(told()) == {"a": [True, True], "b": [None], "c": [True], "d": [True], "e": [True]}
    assert [bar.measured for bar in bars(told())] == [
        "0.25; 4 of 4 worlds are within it",
        "true in all 4 worlds",
        "not run yet",
        f"1.00 (1.00–1.00) of {MINE}'s 2 ± 0 s",
        "4 of 4 worlds; worst 1.25 (1.25–1.25) (iid)",
        "0.00 ± 0 points",
    ]


def test_bars_that_are_missed() -> None:
    one_loss = told(room={"FedAsync": [1.0, 1.0, 1.0]})
    assert verdicts(one_loss) == {"a": [True, False], "b": [None], "c": [False], "d": [True], "e": [True]}
    assert "room: 2.00 (2.00–2.00) of FedAsync's" in bars(one_loss)[1].measured
    within = told(room={"FedAsync": [1.0, 3.0, 1.0]})  # ratios 2, 2/3 and 2: slower, and not beyond the interval
    assert verdicts(within)["a"] == [True, True]
    assert verdicts(told(iid={defaults_label(): [3.1] * 3}))["d"] == [False]
    assert verdicts(told(imbalance={end_label(): [0.93, 0.92, 0.96]}))["e"] == [False]
    everywhere = {"FedAsync": [3.9] * 3}
    slow = told(iid=everywhere, two_labels=everywhere, imbalance=everywhere, room=everywhere)
    assert verdicts(slow)["a"] == [False, True]


def test_what_nobody_reached_counts_against_us_only_if_we_did_not() -> None:
    race = told(iid={"FedAsync": [None, None, None]})
    place = standing(race, race.worlds[0])
    assert place is not None
    assert never_slower([place]).met
    ours = told(iid={MINE: [None, None, None], "FedAsync": FAST})
    lost = standing(ours, ours.worlds[0])
    assert lost is not None
    assert not never_slower([lost]).met
