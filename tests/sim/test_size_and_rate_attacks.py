"""One client of twelve that claims 2**31 examples, or that skips training, in emulations; and one that does neither."""

from dataclasses import replace
from typing import Any

import pytest

from spyker.config.scenario import load
from spyker.engines.engine import InProcessEngine
from spyker.errors import UsageError
from spyker.protocol.facts import UpdateApplied, UpdateDropped
from spyker.records import Evaluated, Fact
from spyker.sim.adversaries import CLAIMED, Adversaries
from spyker.sim.cluster import ClusterSimulation
from spyker.sim.simulate import simulate
from spyker.tasks.registry import resolve, task_spec

SETTINGS: dict[str, Any] = {
    "duration": 8.0,
    "evaluation.interval": 8.0,
    "world.regions": ["Paris", "Sydney"],
    "world.clients": [6, 6],
    "task.dimension": 32,
    "spyker.h-intra": 50.0,
}


def play(algorithm: str, kind: str | None, when: str = "always") -> tuple[float, list[Fact]]:
    """Return the final score, and the updates that were applied and dropped."""
    said = SETTINGS | {"algorithm": algorithm, "robust.when": when}
    if kind is not None:
        said["world.adversaries"] = {"kind": kind, "clients": [0]}
    scores: list[float] = []
    facts: list[Fact] = []

    def sink(t: float, fact: Fact, queue: int | None) -> None:
        if isinstance(fact, Evaluated):
            scores.append(fact.mean)
        elif isinstance(fact, UpdateApplied | UpdateDropped):
            facts.append(fact)

    scenario = resolve(load(None, said, task="quadratic"))
    task = task_spec(scenario).make()
    simulate(scenario, task, InProcessEngine(task), sink)
    return scores[-1], facts


@pytest.mark.parametrize("algorithm", ["stride", "fedavg", "hierfavg", "fedavgm", "hierfavgm"])
def test_who_claims_most_of_the_data_does_not_decide_where_the_model_goes(algorithm: str) -> None:
    honest, bounded, free = (play(algorithm, kind, when)[0] for kind, when in CASES)
    assert bounded > 0.65 * honest
    assert free < 0.3 * honest, "which it does without bounds"


CASES = [(None, "always"), ("size", "always"), ("size", "never")]


@pytest.mark.parametrize("algorithm", ["spyker", "sync-spyker", "fedasync", "fedbuff", "fadas", "fedasyncm"])
def test_who_skips_training_has_not_most_of_the_updates(algorithm: str) -> None:
    honest = play(algorithm, None)[0]
    score, facts = play(algorithm, "rate")
    applied = [fact.client for fact in facts if isinstance(fact, UpdateApplied)]
    dropped = {fact.client for fact in facts if isinstance(fact, UpdateDropped)}
    assert dropped == {0}
    assert applied.count(0) <= 8 * sorted(applied.count(k) for k in range(12))[6]
    assert score > honest - 0.15


def test_an_attacker_that_skips_training_floods_a_server_without_bounds() -> None:
    _, facts = play("spyker", "rate", "never")
    applied = [fact.client for fact in facts if isinstance(fact, UpdateApplied)]
    assert applied.count(0) > len(applied) / 2


def test_a_client_that_reconnects_first_after_a_crash_and_sends_its_kept_updates_again_loses_none(emulate: Any) -> None:
    table = {
        "algorithm": "fedasync",
        "duration": 8.0,
        "task": {"name": "quadratic", "dimension": 2},
        "world": {"regions": ["a", "b"], "clients": [1, 3], "latency-ms": [[1.0, 1.0], [1.0, 1.0]]},
        "training": {"rate": 0.3, "delay-ms": [30.0] * 4},
        "robust": {"when": "always"},
    }

    def faults(world: ClusterSimulation) -> None:
        world.reconnect = 0.1
        world.rules = replace(world.rules, checkpoint_updates=10**6, checkpoint_seconds=1000.0)
        world.schedule(1.0, world.crash, 0)
        world.schedule(1.1, world.cut_region, 0, 1)
        world.schedule(2.0, world.restart, 0)
        world.schedule(2.4, world.heal_region, 0, 1)

    facts, _ = emulate(table, faults)
    lost = next(f for f in facts if f["kind"] == "server-resumed")["lost_updates"]
    resent = [f for f in facts if f["kind"] == "update" and f["client"] == 0 and 2.0 < f["t"] < 2.3]
    assert len(resent) >= lost / 4 > 15, "more than a client may send at once otherwise"
    assert not [f for f in facts if f["kind"] == "update-dropped"]
    clipped = [f["t"] for f in facts if f["kind"] == "update-clipped" and f["limit"] == 0.0]
    assert not clipped, "and none is clipped to nothing"


def test_attackers_can_be_named_and_must_exist() -> None:
    def adversaries(**options: Any) -> Adversaries:
        scenario = resolve(load(None, SETTINGS | {"world.adversaries": options}, task="quadratic"))
        found = Adversaries.of(scenario)
        assert found is not None
        return found

    size = adversaries(kind="size", clients=[3, 7])
    assert size.clients == {3, 7}
    assert [size.sizes(lambda k: 5)(k) for k in (3, 4)] == [CLAIMED, 5]
    assert adversaries(kind="rate", clients=[1]).delays([0.2, 0.3, 0.4]) == [0.2, 0.0, 0.4]
    with pytest.raises(UsageError, match=r"world\.adversaries\.clients: 12 is not allowed"):
        adversaries(clients=[12])
