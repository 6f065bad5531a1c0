"""Facts as rows of numbers: names and values by hand."""

from dataclasses import dataclass
from typing import ClassVar

from spyker.plots.trackers.rows import MetricRows
from spyker.protocol.facts import ClientReported, Merged, UpdateApplied
from spyker.records import Evaluated, Fact, RunStarted, ServerPlace, UnknownFact


@dataclass(frozen=True, slots=True)
class Bent(Fact):
    """A fact of somebody's own algorithm."""

    kind: ClassVar[str] = "bent"
    server: int
    angle: float


def started(server: int | None = None) -> RunStarted:
    servers = [ServerPlace(0, "Paris", 3), ServerPlace(1, "Sydney", 3), ServerPlace(2, "Paris", None)]
    return RunStarted(
        1, "0", "a", "A", "t", "accuracy", True, ["Paris", "Sydney"], servers, 6, 1, [], 1.0, "emulated", server, None
    )


def evaluation(updates: int, *scores: float) -> Evaluated:
    mean = sum(scores) / len(scores)
    return Evaluated(updates, 100 * updates, mean, min(scores), max(scores), 0.75, list(scores))


def update(staleness: float, age: float) -> UpdateApplied:
    return UpdateApplied(0, 2, staleness, 0.5, age, 1, 0.1)


def test_a_row_has_scores_counts_so_far_and_means_since_the_last_row() -> None:
    readings = MetricRows(started())
    facts = [update(2, 1.0), update(4, 3.0), Merged(0, 1, 1, 0.25, 8.0), Bent(1, 30.0), Bent(1, 60.0)]
    assert all(readings.fact(0.5, fact) is None for fact in facts)
    row = readings.fact(1.5, evaluation(2, 0.5, 0.75))
    assert row is not None
    assert (row.updates, row.t) == (2, 1.5)
    assert row.numbers == {
        "accuracy/mean": 0.625,
        "accuracy/worst": 0.5,
        "accuracy/best": 0.75,
        "accuracy/averaged": 0.75,
        "accuracy of servers/Paris": 0.5,
        "accuracy of servers/Sydney": 0.75,
        "run/seconds": 1.5,
        "run/updates": 2,
        "run/bytes": 200,
        "update/count": 2,
        "update/staleness": 3,
        "update/weight": 0.5,
        "update/age": 2,
        "update/rate": 0.1,
        "merge/count": 1,
        "merge/weight": 0.25,
        "merge/age": 8,
        "bent/count": 2,
        "bent/angle": 45,
    }
    readings.fact(2.0, update(6, 5.0))
    after = readings.fact(2.5, evaluation(3, 0.5, 0.75))
    assert after is not None
    assert (after.numbers["update/count"], after.numbers["update/staleness"]) == (3, 6)
    assert after.numbers["bent/count"] == 2
    assert "bent/angle" not in after.numbers, "there was none"


def test_what_clients_measure_is_averaged_and_what_is_no_number_left_out() -> None:
    readings = MetricRows(started())
    for loss in (1.0, 3.0, float("nan")):
        readings.fact(0.1, ClientReported(0, 1, 1, 12, {"loss": loss}))
    readings.fact(0.1, UnknownFact("strange", {"x": 1.0}))
    row = readings.fact(1.0, evaluation(0, float("nan"), 0.5))
    assert row is not None
    assert (row.numbers["report/loss"], row.numbers["report/count"], row.numbers["strange/count"]) == (2, 3, 1)
    assert "accuracy/mean" not in row.numbers
    assert row.numbers["accuracy of servers/Sydney"] == 0.5


def test_one_deployed_server_has_one_score() -> None:
    row = MetricRows(started(server=1)).fact(1.0, evaluation(0, 0.5))
    assert row is not None
    assert {name for name in row.numbers if name.startswith("accuracy")} == {"accuracy/mean"}
