"""The claim checker on made-up numbers for which the answer is known."""

import pytest

from spyker.plots.curves import Curve
from spyker.plots.samples import sample
from spyker_lab.paper.claims import Claim, ClaimKind, ClaimVerdict, table, truth
from spyker_lab.paper.comparisons import all_true, greater_than, is_less, percent_less, ratio
from spyker_lab.paper.item import Results
from spyker_lab.paper.items.accuracy import common_levels, first_of, last_of, not_behind


def test_a_mean_needs_every_seed() -> None:
    assert sample([1.0, 3.0]).mean == 2.0
    assert sample([1.0, None]).mean is None
    assert sample([1.0, None]).text() == "– (1 of 2 seeds)"
    assert sample([None]).text() == "–"
    assert sample([2.0]).text(".3g", " s") == "2 s"
    assert sample([1.0, 3.0]).text(".3g", " s") == "2 ± 1.4 s"


def test_comparisons_are_made_seed_by_seed() -> None:
    assert percent_less(sample([22.0, 30.0]), sample([55.0, 60.0])).numbers == (60.0, 50.0)
    assert ratio(sample([22.0, None]), sample([11.0, 1.0])).numbers == (2.0, None)


@pytest.mark.parametrize(
    ("ours", "verdict"),
    [
        ([61.0, 62.0], ClaimVerdict.HOLDS),
        ([49.0, 49.0], ClaimVerdict.HOLDS),  # four fifths of 61 are 48.8
        ([80.0], ClaimVerdict.HOLDS),  # a larger effect confirms it as well
        ([48.0, 48.0], ClaimVerdict.DIRECTION),
        ([90.0, 1.0], ClaimVerdict.DIRECTION),  # it is the mean that counts for the size
        ([6.0, 23.0], ClaimVerdict.DIRECTION),
        ([120.0, -1.0], ClaimVerdict.FAILS),  # one seed disagrees
        ([0.0], ClaimVerdict.FAILS),
        ([61.0, None], ClaimVerdict.OPEN),
        ([], ClaimVerdict.OPEN),
    ],
)
def test_verdicts(ours: list[float | None], verdict: ClaimVerdict) -> None:
    assert Claim("faster", 61.0, sample(ours), unit=" %").verdict is verdict


@pytest.mark.parametrize(
    ("mine", "theirs", "verdict"),
    [
        (12.0, greater_than(40.0), ClaimVerdict.HOLDS),  # at least 70 % less time
        (30.0, greater_than(40.0), ClaimVerdict.DIRECTION),  # at least 25 %
        (greater_than(40.0), 40.0, ClaimVerdict.FAILS),
        (greater_than(40.0), greater_than(40.0), ClaimVerdict.OPEN),
        (greater_than(20.0), 40.0, ClaimVerdict.OPEN),  # it may be 21 s or 41 s
    ],
)
def test_a_time_beyond_the_end_of_a_run_decides_what_it_can(
    mine: float | tuple[float, float], theirs: float | tuple[float, float], verdict: ClaimVerdict
) -> None:
    assert Claim("faster", 61.0, percent_less(sample([mine]), sample([theirs]))).verdict is verdict


def test_one_seed_that_disagrees_decides_whatever_the_others_would_show() -> None:
    gain = percent_less(sample([greater_than(40.0), greater_than(40.0)]), sample([30.0, greater_than(40.0)]))
    assert Claim("faster", 61.0, gain).verdict is ClaimVerdict.FAILS
    assert truth("first", [False, None]).verdict is ClaimVerdict.FAILS


def test_bounds_are_shown() -> None:
    assert sample([greater_than(40.0)]).text(".3g", " s") == "> 40 s"
    assert sample([greater_than(40.0), 20.0]).text(".3g", " s") == "> 30 s (1 of 2 seeds)"
    assert percent_less(sample([greater_than(40.0)]), sample([20.0])).text(".3g", " %") == "< -100 %"


def test_which_is_smaller() -> None:
    assert is_less((1.0, 1.0), (2.0, 2.0)) is True
    assert is_less((2.0, 2.0), (2.0, 2.0)) is False  # a tie is not before
    assert is_less((2.0, 2.0), greater_than(2.0)) is True
    assert is_less(greater_than(2.0), (2.0, 2.0)) is False
    assert is_less((3.0, 3.0), greater_than(2.0)) is None
    assert [all_true([True, None]), all_true([False, None]), all_true([True, True])] == [None, False, True]


def test_a_size_has_its_interval() -> None:
    assert Claim("faster", 61.0, sample([20.0, 30.0, 25.0]), unit=" %").here == "25 % (12.6 to 37.4)"
    assert Claim("faster", 61.0, sample([20.0]), unit=" %").here == "20 %"


def test_no_effect_may_be_another_number_than_zero() -> None:
    slower = Claim("takes longer", 1.5, sample([1.39]), neutral=1.0)
    assert slower.verdict is ClaimVerdict.DIRECTION  # an effect of 0.39 is less than four fifths of 0.5
    assert Claim("takes longer", 1.5, sample([1.41]), neutral=1.0).verdict is ClaimVerdict.HOLDS
    assert Claim("takes longer", 1.5, sample([0.9]), neutral=1.0).verdict is ClaimVerdict.FAILS


def test_a_claim_without_a_size_has_a_direction_only() -> None:
    assert Claim("decay helps", None, sample([0.1])).verdict is ClaimVerdict.HOLDS


def test_true_or_false() -> None:
    assert truth("first", [True, True]).verdict is ClaimVerdict.HOLDS
    assert truth("first", [True, False]).verdict is ClaimVerdict.FAILS
    assert truth("first", [True, None]).verdict is ClaimVerdict.OPEN
    assert [truth("", h).here for h in ([True], [False], [True, False])] == ["yes", "no", "in 1 of 2 seeds"]


@pytest.mark.parametrize(
    ("kind", "ours", "verdict"),
    [
        (ClaimKind.LEVEL, [300.0], ClaimVerdict.HOLDS),
        (ClaimKind.LEVEL, [240.0, 250.0], ClaimVerdict.HOLDS),
        (ClaimKind.LEVEL, [239.0], ClaimVerdict.FAILS),
        (ClaimKind.LEVEL, [3000.0], ClaimVerdict.FAILS),  # more is not better
        (ClaimKind.LEVEL, [None], ClaimVerdict.OPEN),
        (ClaimKind.LIMIT, [300.0], ClaimVerdict.HOLDS),
        (ClaimKind.LIMIT, [10.0], ClaimVerdict.HOLDS),
        (ClaimKind.LIMIT, [375.0], ClaimVerdict.HOLDS),
        (ClaimKind.LIMIT, [376.0], ClaimVerdict.FAILS),
    ],
)
def test_levels_and_limits(kind: ClaimKind, ours: list[float | None], verdict: ClaimVerdict) -> None:
    assert Claim("around 300", 300.0, sample(ours), kind=kind).verdict is verdict


def test_a_threshold_shows_what_was_measured() -> None:
    assert truth("above 20", [False], measured=sample([19.0])).here == "no (19)"


def test_a_claim_that_is_open_says_why() -> None:
    assert Claim("faster", 61.0, sample([None]), why="noise").markdown().endswith("| a target was not reached |\n")


def test_a_reason_is_given_only_for_what_does_not_hold() -> None:
    rows = table([Claim("a", 10.0, sample([1.0]), why="noise"), Claim("b", 10.0, sample([10.0]), why="noise")])
    assert rows.splitlines()[2] == "| a | 10 | 1 | holds in direction | noise |"
    assert rows.splitlines()[3] == "| b | 10 | 10 | holds |  |"


def made_up(**scores: list[float]) -> Results:
    """Runs, one seed each, with these scores at 1 s, 2 s and so on."""
    results = Results({label: [] for label in scores}, {})
    for label, mean in scores.items():
        steps = list(range(1, len(mean) + 1))
        curve = Curve("accuracy", True, [*map(float, steps)], steps, steps, mean, mean, mean, mean, 0, True)
        results._curves[label] = [curve]
    return results


def test_algorithms_are_compared_at_the_best_level_that_all_reach() -> None:
    results = made_up(fast=[0.2, 0.5, 0.9], slow=[0.1, 0.2, 0.5])
    levels = common_levels(results)
    assert levels.numbers == (0.5,)
    times_to_it = {label: results.to_level(label, levels) for label in results.labels}
    assert (times_to_it["fast"].numbers, times_to_it["slow"].numbers) == ((2.0,), (3.0,))
    assert first_of(times_to_it, "fast") == [True]


def test_nobody_is_compared_beyond_what_runs_were_to_reach() -> None:
    results = made_up(fast=[0.2, 0.5, 0.9], slow=[0.1, 0.2, 0.6])
    results.settings = {label: {"evaluation.stop-at": 0.4} for label in results.labels}
    assert common_levels(results).numbers == (0.4,)


def test_who_does_not_reach_a_level_worth_comparing_is_behind_who_does() -> None:
    results = made_up(fast=[0.2, 0.35, 0.4], slow=[0.1, 0.2, 0.25])
    times_to_it = {label: results.to_level(label, common_levels(results, least=0.3)) for label in results.labels}
    assert first_of(times_to_it, "fast") == [True]
    assert last_of(times_to_it, "slow") == [True]
    assert times_to_it["slow"].text(".3g", " s") == "> 3 s"


def test_a_run_that_diverged_is_behind_those_that_did_not() -> None:
    results = made_up(fast=[0.2, 0.35, 0.4], slow=[0.1, 0.2, 0.25])
    results._curves["slow"] = [None]
    results.settings = {"slow": {"duration": 3.0}}
    assert first_of({label: results.time_to(label, 0.3) for label in results.labels}, "fast") == [True]


def test_nothing_is_concluded_from_levels_next_to_guessing() -> None:
    results = made_up(fast=[0.2, 0.25, 0.24], slow=[0.1, 0.2, 0.25])
    levels = common_levels(results, least=0.3)
    times_to_it = {label: results.to_level(label, levels) for label in results.labels}
    assert truth("fast is first", first_of(times_to_it, "fast")).verdict is ClaimVerdict.OPEN
    assert common_levels(results, least=0.25).numbers == (0.25,)


def test_who_stands_in_the_way_is_named() -> None:
    times_to_it = {
        "Spyker": sample([6.0]),
        "FedAsync": sample([6.0]),
        "FedAvg": sample([9.0]),
        "HierFAVG": sample([None]),
    }
    assert not_behind(times_to_it, "Spyker", ahead=False) == "FedAsync: no later"
    assert not_behind(times_to_it, "FedAvg", ahead=True) == "the seeds differ"
