"""Whole server processes in the emulated world: as long as nothing fails, nobody could tell."""

import math
from dataclasses import replace
from typing import Any

import pytest
from every_algorithm import ALGORITHMS, BUILT_IN_FIRST

from spyker.placement import Topology
from spyker.sim.cluster import ClusterSimulation


def heterogeneous(algorithm: str, seed: int) -> dict[str, Any]:
    """Three regions of unlike size and distance, slow links, and clients of very different speeds."""
    sections: dict[str, Any] = {
        "spyker": {"h-inter": 3.0, "h-intra": 10.0},
        "sync-spyker": {"h-intra": 4.0},
        "fedavg": {"fraction": 0.6},
        "hierfavg": {"fraction": 0.6},
        "fedavgm": {"fraction": 0.6},
        "hierfavgm": {"fraction": 0.6},
    }
    section = ALGORITHMS[algorithm].section
    return {
        "algorithm": algorithm,
        "seed": seed,
        "duration": 3.0,
        "task": {"name": "quadratic", "dimension": 3},
        "world": {
            "regions": ["a", "b", "c"],
            "clients": [7, 1, 3],
            "latency-ms": [[1.0, 31.0, 47.0], [29.0, 2.0, 83.0], [43.0, 79.0, 3.0]],
            "bandwidth-mbit": 0.5,
        },
        "training": {"rate": 0.3, "delay-ms": {"mean": 60.0, "std": 40.0}},
        "evaluation": {"interval": 0.25},
    } | ({section: sections[algorithm]} if algorithm in sections else {})


def nothing(world: ClusterSimulation) -> None:
    """Nothing happens to anybody."""


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("algorithm", BUILT_IN_FIRST)
def test_without_faults_the_facts_are_those_of_bare_servers(emulate: Any, algorithm: str, seed: int) -> None:
    table = heterogeneous(algorithm, seed)
    bare, bare_summary = emulate(table)
    hosted, hosted_summary = emulate(table, nothing)
    assert hosted == bare
    assert hosted_summary.pop("events") > bare_summary.pop("events"), "acknowledgements and timers"
    assert hosted_summary == bare_summary
    assert bare_summary["updates"] > 50
    assert bare_summary["synchronisations"] > 1 or ALGORITHMS[algorithm].topology is Topology.SINGLE


@pytest.mark.parametrize("algorithm", BUILT_IN_FIRST)
def test_nor_does_it_matter_that_many_things_happen_at_the_same_time(emulate: Any, algorithm: str) -> None:
    """All clients are equally fast, all regions equally far, and messages of any size take no time."""
    table = heterogeneous(algorithm, 1)
    table["training"]["delay-ms"] = [10.0] * 11
    table["world"] |= {
        "latency-ms": [[1.0 if i == j else 10.0 for j in range(3)] for i in range(3)],
        "bandwidth-mbit": 1e12,
    }
    assert emulate(table, nothing)[0] == emulate(table)[0]


def test_a_slow_disk_delays_what_servers_tell_each_other_and_not_what_clients_are_told(emulate: Any) -> None:
    table = heterogeneous("spyker", 1)

    def slow(world: ClusterSimulation) -> None:
        for disk in world.disks:
            disk.seconds = 0.1

    facts = {name: emulate(table, faults)[0] for name, faults in (("instant", nothing), ("slow", slow))}
    first = {name: next(f["t"] for f in fs if f["kind"] == "merge") for name, fs in facts.items()}
    assert first["slow"] >= first["instant"] + 0.1
    before = [[f for f in fs if f["kind"] == "update" and f["t"] < first["instant"]] for fs in facts.values()]
    assert before[0] == before[1]


def test_a_hosted_run_is_repeatable_with_faults(emulate: Any) -> None:
    table = heterogeneous("spyker", 1)

    def faults(world: ClusterSimulation) -> None:
        world.reconnect = 0.1
        world.rules = replace(world.rules, client_timeout=0.5)
        world.schedule(0.7, world.crash, 0)
        world.schedule(1.0, world.restart, 0)
        world.schedule(1.2, world.cut, 0, 1)
        world.schedule(1.6, world.heal, 0, 1)
        world.schedule(1.5, world.move, 3, 1)

    facts, summary = emulate(table, faults)
    assert emulate(table, faults) == (facts, summary)
    assert summary["updates"] == sum(summary["updates_per_client"]) == sum(summary["updates_per_server"])
    assert math.isfinite(summary["final"]["mean"])
