"""A client whose training fails leaves the run, and the others go on."""

import json
from typing import Any

import pytest
from every_algorithm import ALGORITHMS

from spyker.config.scenario import Scenario, load
from spyker.engines.engine import Engine, InProcessEngine
from spyker.engines.worker_processes import ProcessPoolEngine
from spyker.errors import ClientTrainingError, DivergenceError
from spyker.records import Fact, line
from spyker.sim.simulate import simulate
from spyker.tasks.registry import resolve, task_spec

TASK = "helpers.faulty_task:make"
SETTINGS: dict[str, Any] = {"duration": 4.0, "world.clients": [3, 1, 2, 2], "evaluation.interval": 0.5}


def faulty(algorithm: str = "fedavg", **settings: Any) -> Scenario:
    return resolve(load(None, SETTINGS | {"algorithm": algorithm} | settings, task=TASK))


def play(
    scenario: Scenario, engine: Engine | None = None, faults: Any = None
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The facts of a run as they stand in its record, and its summary."""
    facts: list[dict[str, Any]] = []

    def sink(t: float, fact: Fact, queue: int | None) -> None:
        facts.append(json.loads(line(t, fact, queue)))

    task = task_spec(scenario).make()
    with engine or InProcessEngine(task) as trainers:
        return facts, simulate(scenario, task, trainers, sink, faults=faults)


@pytest.mark.parametrize("hosted", [False, True])
@pytest.mark.parametrize("kind", ["raising", "diverging"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_client_that_fails_is_excluded_and_all_others_go_on(algorithm: str, kind: str, hosted: bool) -> None:
    """Client 1 is one of three, and client 3 the only one of its region."""
    scenario = faulty(algorithm, **{f"task.{kind}": [1, 3], "task.step": 2})
    facts, summary = play(scenario, faults=(lambda world: None) if hosted else None)
    failed = summary["failed_clients"]
    assert sorted(each["client"] for each in failed) == [1, 3]
    assert all(0 < each["time"] < 2.5 for each in failed)
    reason = "ValueError: the data of client {} is damaged" if kind == "raising" else "its weights are not finite"
    assert all(each["reason"].startswith(reason.format(each["client"])) for each in failed)
    stated = [fact for fact in facts if fact["kind"] == "client-failed"]
    assert [(fact["client"], fact["t"], fact["reason"]) for fact in stated] == [tuple(each.values()) for each in failed]
    late = [fact for fact in facts if fact["kind"] == "update" and fact["t"] > stated[-1]["t"] + 0.5]
    assert {fact["client"] for fact in late} == {0, 2, 4, 5, 6, 7}
    assert sum(server["clients"] for server in summary["servers"]) == 6


@pytest.mark.parametrize("algorithm", ["stride", "spyker", "fedavg", "hierfavg"])
def test_whole_processes_lose_the_same_clients_at_the_same_time(algorithm: str) -> None:
    scenario = faulty(algorithm, **{"task.raising": [1, 3], "task.step": 1})
    bare, hosted = play(scenario)[1], play(scenario, faults=lambda world: None)[1]
    assert bare["failed_clients"] == hosted["failed_clients"]
    assert bare["updates_per_client"] == hosted["updates_per_client"]


def test_the_number_of_workers_changes_no_byte() -> None:
    scenario = faulty("fedasync", **{"task.raising": [1, 6], "task.diverging": [4], "task.step": 1})
    right = play(scenario)
    assert len(right[1]["failed_clients"]) == 3
    assert play(scenario, ProcessPoolEngine(task_spec(scenario), 4, 2)) == right


@pytest.mark.parametrize("kind", ["raising", "diverging"])
def test_a_run_in_which_all_clients_fail_stops_with_the_first_error(kind: str) -> None:
    scenario = faulty(**{f"task.{kind}": list(range(8)), "task.step": 1})
    expected = {
        "raising": (ClientTrainingError, r"(?s)task Faulty, training client \d:\nTraceback.*is damaged"),
        "diverging": (DivergenceError, r"training diverged\. First at client \d, at t = .*training number 1"),
    }
    error, text = expected[kind]
    with pytest.raises(error, match=text):
        play(scenario)


def test_a_run_too_short_for_all_clients_stops_if_no_training_succeeded() -> None:
    scenario = faulty("fedasync", **{"task.raising": list(range(8)), "training.delay-ms": [100.0] * 7 + [9000.0]})
    with pytest.raises(ClientTrainingError, match="is damaged"):
        play(scenario)


@pytest.mark.parametrize(("kind", "error"), [("raising", ClientTrainingError), ("diverging", DivergenceError)])
def test_a_run_stops_at_the_first_failure_if_asked_to(kind: str, error: type[Exception]) -> None:
    with pytest.raises(error, match="client 3") as raised:
        play(faulty(**{f"task.{kind}": [3], "training.on-client-error": "stop"}))
    assert kind == "diverging" or 'on-client-error = "continue"' in str(raised.value)


def test_stride_still_halves_a_rate_that_makes_most_trainings_diverge() -> None:
    facts, summary = play(faulty("stride", **{"task.diverging": [4, 5, 6]}))
    assert any(fact["kind"] == "rate-halved" for fact in facts)
    assert {each["client"] for each in summary["failed_clients"]} == {4, 5, 6}


def test_one_of_two_clients_with_damaged_data_does_not_lower_the_rate_of_the_other() -> None:
    facts, summary = play(faulty("stride", **{"task.diverging": [5]}))
    assert [each["client"] for each in summary["failed_clients"]] == [5]
    (restored,) = [fact for fact in facts if fact["kind"] == "rate-restored"]
    after = [fact for fact in facts if fact["kind"] == "update" and fact["client"] == 4 and fact["t"] > restored["t"]]
    assert {fact["rate"] for fact in after} == {restored["rate"]} == {0.05}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_clients_fail_while_servers_crash_and_a_region_is_cut_off(algorithm: str) -> None:
    """Client 3, the only one of its region, fails while that is cut off; client 1, while its server is down."""
    scenario = faulty(algorithm, **{"task.raising": [1, 3], "task.step": 1, "duration": 8.0})

    def faults(world: Any) -> None:
        world.schedule(0.2, world.isolate, 1)
        world.schedule(2.0, world.rejoin, 1)
        world.schedule(0.2, world.crash, 0)
        world.schedule(1.0, world.restart, 0)

    facts, summary = play(scenario, faults=faults)
    failed = [each["client"] for each in summary["failed_clients"]]
    assert set(failed) <= {1, 3}
    assert 1 in failed
    assert len(failed) == len(set(failed))
    late = {fact["client"] for fact in facts if fact["kind"] == "update" and fact["t"] > 6.0}
    assert late == set(range(8)) - set(failed)
