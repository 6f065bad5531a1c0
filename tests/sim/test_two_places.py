"""Identities that are in use in two places: found if there are two processes, and only then."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from spyker.sim.cluster import ClusterSimulation

THIEF, OWNER = 3, 0  # clients of the second and of the first server
SECOND_PROCESS = ("client-at-two-servers", "server-duplicated")


def scenario(algorithm: str = "spyker", delay: float = 200.0) -> dict[str, Any]:
    return {
        "algorithm": algorithm,
        "duration": 20.0,
        "task": {"name": "quadratic", "dimension": 2},
        "world": {
            "regions": ["a", "b", "c"],
            "clients": [2, 2, 2],
            "latency-ms": [[1.0, 30.0, 30.0], [30.0, 1.0, 30.0], [30.0, 30.0, 1.0]],
        },
        "training": {"rate": 0.3, "delay-ms": [delay] * 6},
        "spyker": {"h-inter": 3.0, "h-intra": 10.0},
    }


def alerts(emulate: Any, faults: Callable[[ClusterSimulation], None], **more: Any) -> list[dict[str, Any]]:
    """The alerts of all servers."""

    def quick(world: ClusterSimulation) -> None:
        world.reconnect = 0.2
        world.rules = replace(world.rules, checkpoint_seconds=1.0)
        world.suspect_after, world.renew_token_after = 2.0, 4.0
        faults(world)

    facts, _ = emulate(scenario(**more), quick)
    return [fact for fact in facts if fact["kind"] in SECOND_PROCESS]


@pytest.mark.parametrize("algorithm", ["spyker", "stride"])
def test_both_servers_report_a_client_whose_key_is_in_use_at_both(emulate: Any, algorithm: str) -> None:
    def steal(world: ClusterSimulation) -> None:
        world.stolen[THIEF] = OWNER

    found = alerts(emulate, steal, algorithm=algorithm)
    assert {(fact["server"], fact["client"], fact["peer"]) for fact in found} == {(0, OWNER, 1), (1, OWNER, 0)}
    assert len(found) == 2, "once per minute"
    assert all(fact["t"] < 8.0 for fact in found), "a few heartbeats after the first trainings"


def test_a_client_that_moves_to_and_fro_is_no_second_process(emulate: Any) -> None:
    """Heartbeats that tell of the client are on their way while it moves and is given tasks by the next server."""

    def move(world: ClusterSimulation) -> None:
        world.reconnect = 0.001
        for n in range(2, 18):
            world.schedule(n + 0.5, world.move, 0, 1)
            world.schedule(n + 1.001, world.move, 0, 0)

    assert alerts(emulate, move, delay=2.0) == []


def test_servers_that_crash_are_stopped_or_are_cut_off_are_no_second_processes(emulate: Any) -> None:
    def faults(world: ClusterSimulation) -> None:
        for t, do, arguments in (
            (2.0, world.crash, (0,)),
            (2.1, world.move, (0, 1)),
            (2.5, world.restart, (0,)),
            (3.0, world.move, (0, 0)),
            (5.0, lambda: world.processors[1].stop(), ()),
            (5.1, world.move, (2, 2)),
            (8.5, lambda: world.processors[1].wake(), ()),
            (10.0, world.cut, (0, 2)),
            (10.0, world.move, (4, 0)),
            (13.0, world.heal, (0, 2)),
        ):
            world.schedule(t, do, *arguments)

    assert alerts(emulate, faults) == []


def test_the_others_report_a_server_whose_state_was_copied(emulate: Any) -> None:
    found = alerts(emulate, lambda world: world.schedule(5.0, world.copy, 0))
    assert {(fact["peer"], fact["reason"]) for fact in found} == {(0, "copied state")}
    assert {fact["server"] for fact in found} >= {0}, "also the one that must stop"
    assert {fact["server"] for fact in found} & {1, 2}
