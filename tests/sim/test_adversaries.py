"""Worlds in which one client in ten lies: what a server that has bounds makes of that."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from every_algorithm import BUILT_IN_FIRST

from spyker.config.scenario import Scenario, dump, from_table, load
from spyker.config.world import AdversaryOptions
from spyker.engines.engine import InProcessEngine, TrainJob
from spyker.errors import UsageError
from spyker.protocol.facts import ClientQuarantined, UpdateRejected
from spyker.records import Evaluated, Fact
from spyker.sim.adversaries import Adversaries
from spyker.sim.simulate import simulate
from spyker.tasks.registry import resolve, task_spec
from spyker_lab.native import compiler

SETTINGS: dict[str, Any] = {
    "duration": 10.0,
    "evaluation.interval": 10.0,
    "world.clients": [10, 10, 10, 10],
    "task.dimension": 32,
    "robust.when": "always",
    "spyker.h-intra": 50.0,
}
TWO_LABELS: dict[str, Any] = {
    "task.partition": "pathological",
    "training.rate": 0.2,
    "training.epochs": 3,
    "training.kernel": "native",
    "world.regions": ["Paris", "Sydney"],
    "world.clients": [15, 15],
    "duration": 6.0,
    "evaluation.interval": 0.5,
}


def play(scenario: Scenario, faults: Any = None) -> tuple[list[float], list[Fact]]:
    """The scores of a run, and what was held against clients."""
    scores: list[float] = []
    held: list[Fact] = []

    def sink(t: float, fact: Fact, queue: int | None) -> None:
        if isinstance(fact, Evaluated):
            scores.append(fact.mean)
        elif isinstance(fact, UpdateRejected | ClientQuarantined):  # clipping is no offence
            held.append(fact)

    task = task_spec(scenario).make()
    simulate(scenario, task, InProcessEngine(task), sink, faults=faults)
    return scores, held


def scenario_of(algorithm: str, hostile: Any = None, **settings: Any) -> Scenario:
    said = SETTINGS | settings | {"algorithm": algorithm} | ({} if hostile is None else {"world.adversaries": hostile})
    return resolve(load(None, said, task="quadratic"))


def liars_of(scenario: Scenario) -> frozenset[int]:
    adversaries = Adversaries.of(scenario)
    assert adversaries is not None
    return adversaries.clients


@pytest.mark.parametrize("algorithm", BUILT_IN_FIRST)
@pytest.mark.parametrize("kind", ["huge", "sign-flip"])
def test_every_liar_is_found_out_and_nobody_else(algorithm: str, kind: str) -> None:
    scenario = scenario_of(algorithm, {"kind": kind})
    (_, score), held = play(scenario)
    quarantined = [fact.client for fact in held if isinstance(fact, ClientQuarantined)]
    assert sorted(quarantined) == sorted(liars_of(scenario))
    assert {fact.client for fact in held} == liars_of(scenario)  # type: ignore[attr-defined]
    assert score > 0.2, "and the others have learnt"


@pytest.mark.parametrize("algorithm", BUILT_IN_FIRST)
def test_nothing_is_held_against_honest_clients(algorithm: str) -> None:
    assert play(scenario_of(algorithm))[1] == []


HONEST: dict[str, dict[str, Any]] = {
    "three clients, the model begins at zero, one is fast": {
        "algorithm": "fedasync",
        "world.regions": ["Paris"],
        "world.clients": [3],
        "task.dimension": 400,
        "training.rate": 0.9,
        "training.delay-ms": [5.0, 150.0, 150.0],
    },
    "learning rates change from task to task": {
        "algorithm": "sync-spyker",
        "seed": 98,
        "world.regions": ["Hongkong", "Paris"],
        "world.clients": [25, 25],
        "training.delay-ms": "uneven",
        "training.rate": 0.01,
        "task.dimension": 2,
        "duration": 20.0,
    },
    "the model has not moved between a client's tasks": {
        "algorithm": "fedbuff",
        "seed": 162,
        "world.regions": ["Hongkong", "Paris", "Sydney"],
        "world.clients": [3, 8, 12],
        "training.delay-ms": "heterogeneous",
        "training.rate": 0.01,
        "training.epochs": 4,
        "duration": 20.0,
    },
}


@pytest.mark.parametrize("why", HONEST)
def test_no_honest_client_is_quarantined_where(why: str) -> None:
    held = play(resolve(load(None, SETTINGS | HONEST[why], task="quadratic")))[1]
    assert [fact for fact in held if isinstance(fact, ClientQuarantined)] == []


def test_no_honest_client_is_quarantined_where_a_server_is_killed_and_clients_move() -> None:
    scenario = scenario_of(
        "spyker",
        duration=30.0,
        seed=2,
        **{
            "world.regions": ["Paris", "Sydney", "Hongkong"],
            "world.clients": [4, 4, 4],
            "task.dimension": 8,
            "training.rate": 0.01,
            "training.delay-ms": {"mean": 50.0, "std": 5.0, "floor": 5.0},
            "spyker.h-inter": 20.0,
            "spyker.h-intra": 30.0,
        },
    )

    def faults(world: Any) -> None:
        world.schedule(3.0, world.crash, 1)
        world.schedule(11.0, world.restart, 1)
        for k in range(4, 8):
            world.schedule(6.0, world.move, k, 0)
            world.schedule(15.0, world.move, k, 1)

    held = play(scenario, faults)[1]
    assert [fact for fact in held if isinstance(fact, ClientQuarantined)] == []


def accuracy(**settings: Any) -> float:
    """What is learnt in the end, where each client has two labels."""
    scores, _ = play(resolve(load(None, TWO_LABELS | settings, task="digits")))
    return float(np.mean(scores[-4:]))


@pytest.fixture(scope="module")
def truth() -> float:
    try:
        compiler.find_compiler()
    except UsageError:
        pytest.skip("there is no C compiler here, and PyTorch would take minutes")
    return accuracy()


@pytest.mark.parametrize("kind", ["huge", "sign-flip", "noise"])
def test_what_is_learnt_is_what_would_have_been(truth: float, kind: str) -> None:
    """The opposite of an honest answer looks like an honest answer of somebody with all other labels."""
    assert accuracy(**{"world.adversaries": {"kind": kind}, "robust.when": "always"}) > truth - 0.02


def test_without_bounds_it_is_not(truth: float) -> None:
    assert accuracy(**{"world.adversaries": {"kind": "sign-flip"}}) < truth - 0.02


def test_whole_processes_do_as_bare_servers_do() -> None:
    scenario = scenario_of("fedasync", {"kind": "huge"})
    assert play(scenario) == play(scenario, lambda world: None)


def test_a_quarantine_outlives_its_server() -> None:
    scenario = scenario_of("fedasync", {"kind": "huge", "share": 0.05}, duration=6.0, **{"robust.quarantine": 2.5})

    def faults(world: Any) -> None:
        world.schedule(2.0, world.crash, 0)
        world.schedule(2.1, world.restart, 0)

    quarantined = [fact for fact in play(scenario, faults)[1] if isinstance(fact, ClientQuarantined)]
    assert {fact.client for fact in quarantined} == liars_of(scenario)
    assert len(quarantined) == 2 * len(liars_of(scenario)), "each once more, when it was tried again"


# --- The liars themselves ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("huge", lambda given, trained: np.full(4, 1e30)), ("sign-flip", lambda given, trained: 3 * given - 2 * trained)],
)
def test_what_a_liar_says(kind: str, expected: Callable[[Any, Any], Any]) -> None:
    given, trained = np.arange(4, dtype=np.float32), np.ones(4, np.float32)
    adversaries = Adversaries(AdversaryOptions(kind=kind, strength=2.0), frozenset({5}), seed=1)
    assert np.allclose(adversaries.answer(TrainJob(5, given, 0.1, 0), trained), expected(given, trained))
    assert adversaries.answer(TrainJob(4, given, 0.1, 0), trained) is trained


def test_noise_goes_as_far_as_the_training_and_is_another_one_each_time() -> None:
    given, trained = np.zeros(1000, np.float32), np.ones(1000, np.float32)
    adversaries = Adversaries(AdversaryOptions(kind="noise", strength=3.0), frozenset({5}), seed=1)
    said = [adversaries.answer(TrainJob(5, given, 0.1, step), trained) for step in (0, 0, 1)]
    assert np.linalg.norm(said[0]) == pytest.approx(3 * 1000**0.5, rel=1e-4)
    assert np.array_equal(said[0], said[1])
    assert not np.allclose(said[0], said[2])


def test_the_seed_says_who_lies() -> None:
    scenario = scenario_of("stride", {"share": 0.1})
    assert len(liars_of(scenario)) == 4
    assert liars_of(scenario) == liars_of(replace(scenario, algorithm="fedavg"))
    assert liars_of(scenario) != liars_of(replace(scenario, seed=2))


def test_a_hostile_scenario_reads_back_and_a_wrong_one_is_refused() -> None:
    scenario = scenario_of("stride", {"kind": "noise", "strength": 2.0})
    assert 'adversaries = { share = 0.1, kind = "noise", strength = 2.0 }' in dump(scenario)
    with pytest.raises(UsageError, match=r"world.adversaries.kind: is 'nasty'|world.adversaries.kind"):
        from_table({"world": {"adversaries": {"kind": "nasty"}}})
