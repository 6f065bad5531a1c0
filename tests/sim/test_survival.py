"""Servers that are lost for ever, cut off, replaced, added, removed or copied, while the others go on."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from every_algorithm import ALGORITHMS, slow

from spyker.sim.cluster import ClusterSimulation

FLAT = ("spyker", "sync-spyker", "stride")
TOKENS = ("spyker", "stride")
# What make test runs; test-all runs the others, too.
QUICK_TOKENS = ["stride", *slow("spyker")]
QUICK_FLAT = ["stride", *slow("spyker", "sync-spyker")]
QUICK_ALL = [*QUICK_FLAT, "hierfavg"]


def four(algorithm: str, duration: float = 30.0) -> dict[str, Any]:
    """Four regions with two clients each."""
    sections = {"spyker": {"h-inter": 3.0, "h-intra": 10.0}, "sync-spyker": {"h-intra": 6.0}}
    return {
        "algorithm": algorithm,
        "duration": duration,
        "task": {"name": "quadratic", "dimension": 3},
        "world": {
            "regions": ["a", "b", "c", "d"],
            "clients": [2, 2, 2, 2],
            "latency-ms": [[1.0 if i == j else 40.0 + 5 * abs(i - j) for j in range(4)] for i in range(4)],
        },
        "training": {"rate": 0.1, "delay-ms": [90.0, 110.0] * 4},
        "evaluation": {"interval": 5.0},
    } | ({ALGORITHMS[algorithm].section: sections[algorithm]} if algorithm in sections else {})


class Played:
    """A run that somebody had a hand in."""

    def __init__(self, emulate: Any, table: dict[str, Any], faults: Callable[[ClusterSimulation], None]) -> None:
        worlds: list[ClusterSimulation] = []

        def arranged(world: ClusterSimulation) -> None:
            worlds.append(world)
            world.reconnect = 0.1
            world.rules = replace(world.rules, heartbeat_interval=0.2, client_timeout=2.0)
            world.suspect_after, world.renew_token_after = 1.0, 2.5
            faults(world)

        self.facts, self.summary = emulate(table, arranged)
        (self.world,) = worlds

    def times(self, kind: str, after: float = 0.0, before: float = 1e9, **fields: Any) -> list[float]:
        """When facts of a kind were stated."""
        return [
            fact["t"]
            for fact in self.facts
            if fact["kind"] == kind
            and after <= fact["t"] < before
            and all(fact[name] == value for name, value in fields.items())
        ]

    def epochs(self) -> set[int]:
        return {process.node.view.epoch for process in self.world.processors if process.alive}

    def holders(self) -> list[int]:
        return [p.node.id for p in self.world.processors if p.alive and p.server.has_token]


@pytest.mark.parametrize("algorithm", QUICK_ALL)
def test_without_faults_nobody_is_suspected_and_there_is_one_epoch(emulate: Any, algorithm: str) -> None:
    table = four(algorithm)
    run = Played(emulate, table, lambda world: None)
    assert run.facts == emulate(table)[0]
    assert run.epochs() == {0}


@pytest.mark.parametrize("algorithm", QUICK_FLAT)
@pytest.mark.parametrize("victim", [0, 2])
def test_a_server_lost_for_ever_stops_the_exchange_of_nobody(emulate: Any, algorithm: str, victim: int) -> None:
    run = Played(emulate, four(algorithm), lambda world: world.schedule(5.0, world.crash, victim))
    survivors = [i for i in range(4) if i != victim]
    for i in survivors:
        assert run.times("peer-suspected", server=i, peer=victim)
        assert len(run.times("merge", after=12.0, server=i)) > 5
    assert max(later - earlier for earlier, later in pairs(run.times("sync", after=5.0))) < 6.0
    if algorithm in TOKENS:
        assert len(run.holders()) <= 1


def pairs(times: list[float]) -> list[tuple[float, float]]:
    assert len(times) > 2
    return list(itertools.pairwise(times))


@pytest.mark.parametrize("algorithm", TOKENS)
def test_a_token_that_is_lost_with_its_holder_is_made_anew_once(emulate: Any, algorithm: str) -> None:
    victims: list[int] = []

    def strike(world: ClusterSimulation) -> None:
        (holder,) = [p.node.id for p in world.processors if p.server.has_token] or [None]
        if holder is None:
            world.schedule(world.clock.now + 0.01, strike, world)
            return
        victims.append(holder)
        world.crash(holder, lose_disk=True)

    run = Played(emulate, four(algorithm), lambda world: world.schedule(5.0, strike, world))
    (victim,) = victims
    assert run.epochs() == {1}
    assert len({fact["server"] for fact in run.facts if fact["kind"] == "token" and fact["bid"] == (1 << 32) + 1}) == 1
    assert len(run.times("sync", after=15.0)) > 3
    assert victim not in {fact["server"] for fact in run.facts if fact["t"] > 5.1 and fact["kind"] == "update"}


@pytest.mark.parametrize("algorithm", QUICK_ALL)
def test_a_lost_server_is_replaced_and_begins_with_a_trained_model(emulate: Any, algorithm: str) -> None:
    victim = 2

    def faults(world: ClusterSimulation) -> None:
        world.schedule(10.0, world.replace, 0, victim)

    run = Played(emulate, four(algorithm, 40.0), faults)
    epochs = run.epochs()
    assert epochs == {2}, "one to make its place vacant, and one to let it in"
    again = run.times("update", after=10.1, server=victim)
    assert again, "it has clients again"
    first = next(f for f in run.facts if f["kind"] == "update" and f["server"] == victim and f["t"] > 10.1)
    others = [f["age"] for f in run.facts if f["kind"] == "update" and f["server"] == 0 and 9.0 < f["t"] < 10.0]
    assert first["version"] == 1
    assert first["age"] >= min(others), "it did not begin untrained"
    if algorithm in FLAT:
        assert run.times("merge", after=again[0], server=victim), "it takes part"
        assert run.times("merge", after=again[0], server=0, peer=victim)


@pytest.mark.parametrize("algorithm", QUICK_ALL)
def test_a_cut_between_two_servers_holds_up_nobody_else(emulate: Any, algorithm: str) -> None:
    def faults(world: ClusterSimulation) -> None:
        world.schedule(5.0, world.cut, 0, 1)
        world.schedule(20.0, world.heal, 0, 1)

    run = Played(emulate, four(algorithm), faults)
    kind = "cloud-round" if algorithm == "hierfavg" else "sync"
    assert len(run.times(kind, after=8.0, before=20.0)) > 3
    if algorithm in FLAT:
        assert run.times("merge", after=21.0, server=0, peer=1)
        assert not run.times("merge", after=6.0, before=20.0, server=0, peer=1)
    assert len(run.epochs()) == 1


@pytest.mark.parametrize("algorithm", QUICK_TOKENS)
@pytest.mark.parametrize("region", [0, 3])
def test_a_minority_trains_on_alone_and_merges_when_it_is_back(emulate: Any, algorithm: str, region: int) -> None:
    def faults(world: ClusterSimulation) -> None:
        world.schedule(5.0, world.isolate, region)
        world.schedule(20.0, world.rejoin, region)

    run = Played(emulate, four(algorithm, 40.0), faults)
    assert len(run.times("update", after=8.0, before=20.0, server=region)) > 20
    assert not run.times("sync", after=7.0, before=20.0, server=region), "it starts nothing alone"
    assert len(run.times("sync", after=12.0, before=20.0)) > 2, "the others go on"
    assert run.times("merge", after=21.0, server=region)
    assert run.times("merge", after=21.0, peer=region)
    assert len(run.epochs()) == 1


def test_a_server_is_removed_and_stops(emulate: Any) -> None:
    run = Played(emulate, four("spyker"), lambda world: world.schedule(5.0, lambda: world.change(0, 3, remove=True)))
    assert [(i, "was removed" in why) for i, why in run.world.stopped] == [(3, True)]
    assert run.world.processors[0].node.view.ring == [0, 1, 2]
    assert len(run.times("sync", after=10.0)) > 3


def test_the_older_of_two_copies_stops(emulate: Any) -> None:
    """A process goes on from a copy of another one's state, while that one runs."""

    def faults(world: ClusterSimulation) -> None:
        world.schedule(5.0, world.copy, 1)

    run = Played(emulate, four("spyker"), faults)
    assert [(i, why.split(":")[0]) for i, why in run.world.stopped] == [(1, "duplicate")]
    assert len(run.times("update", after=10.0, server=1)) > 10


@pytest.mark.parametrize("algorithm", QUICK_FLAT)
def test_a_server_with_an_older_state_begins_anew(emulate: Any, algorithm: str) -> None:
    def faults(world: ClusterSimulation) -> None:
        world.schedule(4.0, world.back_up, 1)
        world.schedule(10.0, world.crash, 1)
        world.schedule(10.5, world.restore, 1)
        world.schedule(11.0, world.restart, 1)

    run = Played(emulate, four(algorithm), faults)
    assert [(i, why.split(":")[0]) for i, why in run.world.stopped] == [(1, "outdated")]
    again = [f for f in run.facts if f["kind"] == "update" and f["server"] == 1 and f["t"] > 12.0]
    assert [f["version"] for f in again][-1] == len(again)
    assert run.times("merge", after=15.0, server=0, peer=1)
