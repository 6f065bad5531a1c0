"""A run that learnt nothing says so, and one that did is left alone."""

import json
import math

import pytest

from spyker.records.run_warnings import RoundTimes, ScoreHistory, no_updates, score_warnings, slow_links

RESNET = RoundTimes(transfer=3.6, training=0.15, shortest=7.4, megabytes=44.7, mbit=100.0)


def curve(*points: float, higher: bool = True) -> ScoreHistory:
    scores = ScoreHistory(higher_is_better=higher)
    for point in points:
        scores.add(point)
    return scores


def kinds(scores: ScoreHistory, *, updates: int = 1000, clients: int = 10, met: bool = False) -> list[str]:
    return [warning.kind for warning in score_warnings(scores, "accuracy", updates, clients, met=met)]


LEARNT = {
    "accuracy": curve(0.1, 0.5, 0.9),
    "accuracy, slowly": curve(0.01, 0.02, 0.05),
    "accuracy with ups and downs": curve(0.1, 0.5, 0.4, 0.6, 0.45, 0.7, 0.5, 0.75, 0.6, 0.7),
    "loss": curve(2.3, 1.9, 1.2, higher=False),
    "perplexity": curve(12_000.0, 900.0, 150.0, 180.0, higher=False),
    "negative scores": curve(-40.0, -10.0, -2.0),
    "from infinity": curve(math.inf, 900.0, 150.0, higher=False),
    "perfect from the beginning": curve(1.0, 1.0, 1.0),
    "no error from the beginning": curve(0.0, 0.0, higher=False),
    "one evaluation": curve(0.1),
    "a swing at the end": curve(0.0, 0.38, 0.17),
    "no evaluation": curve(),
    "few classes of many, early": curve(0.01, 0.05),
    "early, in two evaluations": curve(0.064, 0.187),
    "a plateau": curve(0.1, 0.8, 0.8, 0.8),
    "steadily": curve(*(0.1 + 0.005 * i for i in range(40))),
}
NOTHING = {
    "chance": curve(0.1, 0.11, 0.1),
    "chance on few examples": curve(0.12, 0.09, 0.14, 0.1, 0.13, 0.08, 0.12, 0.09, 0.13, 0.14),
    "a constant": curve(0.0, 0.0, 0.0),
    "loss": curve(2.303, 2.302, 2.301, higher=False),
    "a little worse": curve(0.12, 0.1),
    "up to chance": curve(0.064, 0.109, 0.1, 0.104),
    "far up to chance, and always the same answer": curve(0.02, 0.109, 0.109),
    "far up to chance, and no further": curve(0.064, 0.111, 0.106, 0.114, 0.106, 0.109, 0.089, 0.109, 0.117),
}
COLLAPSED = {
    "accuracy": curve(0.1, 0.5, 0.9, 0.1),
    "loss": curve(2.3, 0.4, 0.3, 2.1, higher=False),
    "for two evaluations": curve(0.1, 0.9, 0.3, 0.35),
    "worse than ever": curve(100.0, 1e6, higher=False),
    "not a number": curve(0.1, 0.8, math.nan),
    "to infinity": curve(20.0, 10.0, math.inf, higher=False),
}


@pytest.mark.parametrize("name", LEARNT)
def test_a_run_that_learns_is_not_warned_of(name: str) -> None:
    assert kinds(LEARNT[name]) == []


@pytest.mark.parametrize("name", NOTHING)
def test_a_run_whose_last_score_is_like_its_first_made_no_progress(name: str) -> None:
    assert kinds(NOTHING[name]) == ["no-progress"]
    assert kinds(NOTHING[name], met=True) == []


@pytest.mark.parametrize("name", COLLAPSED)
def test_a_run_that_ends_far_below_its_best_collapsed(name: str) -> None:
    assert kinds(COLLAPSED[name]) == ["collapsed"]


def test_the_remedy_for_a_run_that_is_too_short_is_a_longer_one() -> None:
    (warning,) = score_warnings(NOTHING["chance"], "accuracy", 7, 10, met=False)
    assert str(warning) == (
        "the run learnt next to nothing: accuracy was 0.1 and is 0.1 after 7 updates. "
        "Clients had fewer than one update each: run longer (--duration)."
    )


def test_a_run_without_updates_says_what_a_round_takes() -> None:
    assert str(no_updates(5.0, RESNET)) == (
        "no client update arrived in 5 s: a round takes 7.4 s at least, because sending the model (44.7 MB at 100 "
        "Mbit/s) takes 3.6 s each way, and training it 0.15 s. Run at least 74 s (--duration), raise "
        "world.bandwidth-mbit, or use a smaller model."
    )
    assert "waits for" in no_updates(50.0, RESNET).remedy


def test_links_are_slow_if_they_take_longer_than_training() -> None:
    assert [warning.kind for warning in slow_links(RESNET)] == ["slow-links"]
    assert slow_links(RoundTimes(0.15, 0.15, 0.5, 2.0, 100.0)) == []


@pytest.mark.parametrize("scores", [*LEARNT.values(), *NOTHING.values(), *COLLAPSED.values()])
def test_what_is_known_of_a_curve_survives_a_checkpoint(scores: ScoreHistory) -> None:
    copy = ScoreHistory(higher_is_better=scores.sign > 0)
    copy.restore(json.loads(json.dumps(scores.state())))
    assert (copy.collapsed, copy.stayed, copy.state()) == (scores.collapsed, scores.stayed, scores.state())
