from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from every_algorithm import ALGORITHMS

from spyker.config.scenario import from_table
from spyker.engines.engine import InProcessEngine
from spyker.engines.start_engine import start_engine
from spyker.errors import DivergenceError
from spyker.placement import Topology
from spyker.records import RunStarted, ServerPlace, evaluated, run_started
from spyker.sim.clock import Clock, StopRequest
from spyker.sim.evaluator import Evaluator
from spyker.sim.simulate import simulate
from spyker.tasks.registry import resolve


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_learns(emulate: Any, algorithm: str) -> None:
    table = {"algorithm": algorithm, "task": {"name": "quadratic"}, "training": {"rate": 0.2}, "duration": 20.0}
    facts, summary = emulate(table)
    assert summary["final"]["averaged"] > 0.8
    assert summary["finished"]
    updates = [f for f in facts if f["kind"] == "update"]
    assert summary["updates"] == len(updates) == sum(summary["updates_per_client"]) > 1000
    assert min(summary["updates_per_client"]) > 0
    assert sum(server["version"] for server in summary["servers"]) == summary["updates"]
    assert len(summary["servers"]) == (1 if ALGORITHMS[algorithm].topology is Topology.SINGLE else 4)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_first_fact_says_what_run_it_is(algorithm: str) -> None:
    table = {"algorithm": algorithm, "task": {"name": "quadratic"}, "seed": 7, "duration": 0.5}
    world = {"regions": ["a", "b"], "clients": [3, 1], "latency-ms": [[1.0, 9.0], [9.0, 1.0]], "server-region": 1}
    scenario = resolve(from_table(table | {"world": world, "evaluation": {"interval": 0.25, "targets": [0.5]}}))
    task, engine = start_engine(scenario)
    facts: list[Any] = []
    with engine:
        summary = simulate(scenario, task, engine, lambda t, fact, queue: facts.append(fact))
    first = facts[0]
    assert [fact for fact in facts if isinstance(fact, RunStarted)] == [first]
    assert (first.algorithm, first.title, first.world) == (algorithm, ALGORITHMS[algorithm].title, "emulated")
    assert (first.metric, first.higher_is_better) == (task.metric.name, task.metric.higher_is_better)
    assert (first.seed, first.targets, first.interval, first.clients) == (7, [0.5], 0.25, 4)
    assert (first.server, first.began) == (None, None)
    places = {
        Topology.SINGLE: [ServerPlace(0, "b", 4)],
        Topology.FLAT: [ServerPlace(0, "a", 3), ServerPlace(1, "b", 1)],
        Topology.CLOUD: [ServerPlace(0, "a", 3), ServerPlace(1, "b", 1), ServerPlace(2, "b", None)],
    }
    assert first.servers == places[ALGORITHMS[algorithm].topology]
    with_clients = [place for place in first.servers if place.clients is not None]
    assert [(server["region"], server["clients"]) for server in summary["servers"]] == [
        (place.region, place.clients) for place in with_clients
    ]


def test_time_to_target_is_the_first_evaluation_that_reaches_it(emulate: Any) -> None:
    table = {"algorithm": "fedavg", "task": {"name": "quadratic"}, "evaluation": {"targets": [0.5, 0.99]}}
    facts, summary = emulate(table | {"training": {"rate": 0.2}, "duration": 6.0})
    evaluations = [f for f in facts if f["kind"] == "evaluation"]
    first = next(f for f in evaluations if f["mean"] >= 0.5)
    assert summary["time_to_target"] == {"0.5": first["t"], "0.99": None}
    assert summary["updates_to_target"]["0.5"] == first["updates"]


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_a_run_may_stop_at_a_target_one_evaluation_late(workers: int) -> None:
    table = {
        "task": {"name": "digits"},
        "training": {"rate": 0.2},
        "duration": 30.0,
        "world": {"clients": [2, 2, 2, 2]},
    }
    scenario = resolve(from_table(table | {"evaluation": {"interval": 0.5, "stop-at": 0.2}}))
    facts: list[tuple[float, Any]] = []
    task, engine = start_engine(scenario, workers)
    with engine:
        summary = simulate(scenario, task, engine, lambda t, fact, _: facts.append((t, fact)))
    scores = [(t, fact.mean) for t, fact in facts if fact.kind == "evaluation"]
    assert scores[-2][1] >= 0.2
    assert all(mean < 0.2 for _, mean in scores[:-2])
    assert summary["finished"]
    assert summary["time"] == scores[-1][0] == scores[-2][0] + 0.5 < 30
    assert max(t for t, _ in facts) == summary["time"]


def test_a_run_may_stop_when_the_target_was_held_for_long_enough(emulate: Any) -> None:
    table = {"algorithm": "spyker", "task": {"name": "quadratic"}, "training": {"rate": 0.2}, "duration": 30.0}
    _, whole = emulate(table | {"evaluation": {"interval": 0.1, "targets": [0.5]}})
    first = whole["time_to_target"]["0.5"]
    for seconds, later in ((0.0, 0.1), (0.7, 0.8), (0.75, 0.9)):
        evaluation = {"interval": 0.1, "stop-at": 0.5, "stop-after": seconds}
        _, summary = emulate(table | {"evaluation": evaluation})
        assert summary["time"] == pytest.approx(first + later), "decided at the evaluation after"


def test_a_target_that_was_lost_again_does_not_count() -> None:
    scenario = from_table({"evaluation": {"stop-at": 0.5, "stop-after": 2.0}})
    evaluator = Evaluator(Clock(9.0), None, run_started(scenario, "accuracy", True), scenario.evaluation, None)  # type: ignore[arg-type]

    def stops_after(*means: float) -> bool:
        evaluator.history[:] = [(t, evaluated(0, 0, [m], m, higher_is_better=True)) for t, m in enumerate(means)]
        return evaluator.stayed(0.5, 2.0)

    assert not stops_after(0.0, 0.5, 0.6)
    assert stops_after(0.0, 0.5, 0.6, 0.5)
    assert not stops_after(0.0, 0.5, 0.6, 0.4, 0.5, 0.6)
    assert stops_after(0.0, 0.5, 0.6, 0.4, 0.5, 0.6, 0.7)
    assert not stops_after(0.0)


def test_the_headline_is_the_mean_of_the_servers(emulate: Any) -> None:
    facts, _ = emulate({"task": {"name": "quadratic"}, "duration": 2.0})
    for f in facts:
        if f["kind"] == "evaluation":
            assert f["mean"] == pytest.approx(np.mean(f["servers"]))
            assert (f["worst"], f["best"]) == (min(f["servers"]), max(f["servers"]))


def test_a_run_that_is_stopped_has_a_summary_of_what_happened(emulate: Any) -> None:
    scenario = resolve(from_table({"task": {"name": "quadratic"}, "duration": 100.0}))
    task, engine = start_engine(scenario)
    stop, seen = StopRequest(), 0

    def sink(t: float, fact: object, queue: int | None) -> None:
        nonlocal seen
        seen += 1
        stop.requested = seen > 500

    summary = simulate(scenario, task, engine, sink, stop)
    assert not summary["finished"]
    assert 0 < summary["time"] < 100
    assert summary["updates"] >= 400


def test_a_training_that_runs_away_is_named(emulate: Any) -> None:
    # rate = 5 multiplies the error by 4^10 in every training
    training = {"rate": 5.0, "epochs": 10}
    table = {"algorithm": "fedavg", "task": {"name": "quadratic"}, "training": training, "duration": 30.0}
    with pytest.raises(DivergenceError, match=r"training\.rate"), np.errstate(all="ignore"):
        emulate(table)


def test_large_models_keep_their_weights_out_of_the_summary(emulate: Any) -> None:
    for dimension, shown in ((64, True), (65, False)):
        _, summary = emulate({"task": {"name": "quadratic", "dimension": dimension}, "duration": 0.5})
        assert ("weights" in summary["servers"][0]) is shown


def test_no_training_is_begun_that_would_end_after_the_run(monkeypatch: pytest.MonkeyPatch, emulate: Any) -> None:
    submitted: list[float] = []
    submit = InProcessEngine.submit

    def noted(self: InProcessEngine, job: Any, due: float) -> None:
        submitted.append(due)
        submit(self, job, due)

    monkeypatch.setattr(InProcessEngine, "submit", noted)
    emulate({"task": {"name": "quadratic"}, "duration": 1.0})
    assert submitted
    assert max(submitted) <= 1.0


def test_ties_happen_in_the_order_in_which_they_were_scheduled() -> None:
    clock, happened = Clock(1.0), []

    def note(a: int, b: int) -> None:
        happened.append(a)

    def schedule(time: float, a: int, do: Callable[[Any, Any], None] = note) -> None:
        clock.at(time, do, a, 0)

    schedule(0.5, 1)
    schedule(0.2, 2)
    schedule(0.5, 3)
    schedule(1.5, 4)
    assert clock.run(StopRequest())
    assert happened == [2, 1, 3]
    assert (clock.now, clock.happened) == (1.0, 3)


def test_facts_are_passed_on_as_soon_as_the_scores_before_them_are_there(emulate: Any) -> None:
    # One evaluation at the start and one at the end: whoever watches must not see everything at the very end only.
    scenario = resolve(from_table({"task": {"name": "quadratic"}, "duration": 5.0, "evaluation": {"interval": 5.0}}))
    task, engine = start_engine(scenario)
    stop = StopRequest()

    def sink(t: float, fact: Any, queue: int | None) -> None:
        stop.requested |= fact.kind == "update"

    assert simulate(scenario, task, engine, sink, stop)["time"] < 1
