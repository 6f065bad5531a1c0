"""Models that take far longer than ``suspect-after`` to transfer: nobody is suspected, and all servers merge."""

from typing import Any

import pytest
from test_survival import Played, four

from spyker.sim.cluster import ClusterSimulation

MODEL_SECONDS = 8.0  # suspect-after is 1 s, and a token is renewed after 2.5 s


def slow(algorithm: str) -> dict[str, Any]:
    """Four servers whose links need seconds for one model."""
    table = four(algorithm, 150.0)
    table["task"]["dimension"] = 1000
    table["world"]["bandwidth-mbit"] = 8e-6 * 4 * 1000 / MODEL_SECONDS
    table["training"]["delay-ms"] = [900.0, 1100.0] * 4
    return table


@pytest.mark.parametrize("algorithm", ["spyker", "stride"])
def test_large_models_on_slow_links_are_no_failure(emulate: Any, algorithm: str) -> None:
    def faster_for_clients(world: ClusterSimulation) -> None:
        slowly, links = world.links.between, world.links
        links.seconds_per_byte /= 1000
        links.between = lambda now, i, j, size: slowly(now, i, j, 1000 * size)  # type: ignore[method-assign]

    run = Played(emulate, slow(algorithm), faster_for_clients)
    assert not run.times("peer-suspected")
    assert run.epochs() == {0}, "no token was given up for lost"
    for i in range(4):
        for j in range(4):
            assert i == j or run.times("merge", server=i, peer=j), f"server {i} never merged server {j}'s model"
