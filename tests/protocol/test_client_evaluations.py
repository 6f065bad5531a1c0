"""What a server records of the evaluations that clients send, whatever they contain."""

import math
from typing import Any

import numpy as np
import pytest
from actions import stated
from every_algorithm import ALGORITHMS

from spyker.protocol.codec import MOST_METRICS
from spyker.protocol.facts import ClientEvaluated, ClientReported
from spyker.protocol.messages import Update
from spyker.protocol.server import Server, Setup
from spyker.robust.update_filter import FilterParameters
from spyker.tasks.task import ACCURACY, Metric, limits_by_name

KNOWN = limits_by_name([ACCURACY, Metric("loss", higher_is_better=False)])


def server(metrics: Any = KNOWN, robust: FilterParameters | None = None) -> Server:
    entry = ALGORITHMS["fedasync"]
    weights = np.zeros(2, np.float32)
    setup = Setup(1, 3, weights, 0.1, entry.Parameters(), robust=robust, client_metrics=metrics)
    built = entry.build(0, setup, {0: 1, 1: 1, 2: 1})
    list(built.start())
    return built


def recorded(evaluation: dict[str, float], at: Server | None = None) -> list[ClientEvaluated]:
    update = Update(np.zeros(2, np.float32), 0.0, 0, evaluation=evaluation)
    return list(stated((at or server()).handle(1, update), ClientEvaluated))


def test_the_known_metrics_are_recorded_and_no_others() -> None:
    told = {"examples": 12.0, "accuracy": 0.5, "loss": 3.5, "fame": 1.0, "accuracy ": 0.9}
    assert recorded(told) == [ClientEvaluated(0, 1, 12, {"accuracy": 0.5, "loss": 3.5})]


@pytest.mark.parametrize("value", [1.5, -0.1, 1e300, math.inf, -math.inf, math.nan])
def test_a_value_outside_its_limits_is_not_recorded(value: float) -> None:
    assert recorded({"examples": 12.0, "accuracy": value, "loss": 1.0}) == [], "without the metric it is nothing"
    (found,) = recorded({"examples": 12.0, "accuracy": 0.5, "loss": value if abs(value) > 2 else math.nan})
    assert found.scores == {"accuracy": 0.5}


def test_a_value_without_limits_may_be_large_but_sums_stay_finite() -> None:
    (found,) = recorded({"examples": 2.0**52, "accuracy": 0.5, "loss": 1e99})
    assert math.isfinite(found.scores["loss"] * found.examples * 1_000_000)


@pytest.mark.parametrize("examples", [None, 0.0, -3.0, math.nan, math.inf, 2.0**60])
def test_an_evaluation_without_a_number_of_examples_is_not_recorded(examples: float | None) -> None:
    count = {} if examples is None else {"examples": examples}
    assert recorded({"accuracy": 0.5} | count) == []


def test_a_server_that_did_not_ask_records_none() -> None:
    assert recorded({"examples": 12.0, "accuracy": 0.5}, server({})) == []


def test_a_client_in_quarantine_does_not_evaluate() -> None:
    strict = server(robust=FilterParameters())
    assert recorded({"examples": 12.0, "accuracy": 0.5}, strict)
    strict.update_filter.out[1] = True
    assert recorded({"examples": 12.0, "accuracy": 0.5}, strict) == []


def test_a_client_that_reports_under_new_names_each_time_adds_a_bounded_number_of_them() -> None:
    built, names = server(), set()
    for update in range(5):
        metrics = {"loss": 0.5} | {f"{update}-{number}": 1.0 for number in range(100)}
        reported = Update(np.zeros(2, np.float32), 0.0, 0, metrics=metrics)
        (report,) = stated(built.handle(1, reported), ClientReported)
        assert report.metrics["loss"] == 0.5, "a name that it used before is recorded always"
        names |= report.metrics.keys()
    assert len(names) == MOST_METRICS
