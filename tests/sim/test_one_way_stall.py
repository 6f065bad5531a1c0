"""A link that loses the models of one direction and nothing else: no heartbeat tells that."""

from itertools import pairwise
from typing import Any

from spyker.algorithms.stride_exchange import FIRST_TIMEOUT
from spyker.sim.cluster import ClusterSimulation
from spyker.sim.connected_processes import SimPeerConnection

DURATION = 80.0


def test_clients_wait_no_longer_than_the_first_timeout_for_models_that_never_come(emulate: Any) -> None:
    def faults(world: ClusterSimulation) -> None:
        arrives = world._peer_message_arrives

        def swallow(link: SimPeerConnection, posted: Any) -> None:
            if link.sender.node.id == 1:
                arrives(link, posted)

        world._peer_message_arrives = swallow  # type: ignore[method-assign]

    table = {
        "algorithm": "stride",
        "duration": DURATION,
        "task": {"name": "quadratic", "dimension": 2},
        "world": {"regions": ["a", "b"], "clients": [2, 2], "latency-ms": [[1.0, 30.0], [30.0, 1.0]]},
        "training": {"rate": 0.3, "delay-ms": [200.0] * 4},
        "evaluation": {"interval": DURATION},
    }
    facts, _ = emulate(table, faults)
    assert not [fact for fact in facts if fact["kind"] == "peer-suspected"]
    times = [fact["t"] for fact in facts if fact["kind"] == "update" and fact["server"] == 1]
    longest = max(after - before for before, after in pairwise([*times, DURATION]))
    assert FIRST_TIMEOUT - 1 < longest < FIRST_TIMEOUT + 1
