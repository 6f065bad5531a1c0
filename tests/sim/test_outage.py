"""A region that is cut off for a while, as part of a scenario."""

from typing import Any

import pytest
from every_algorithm import ALGORITHMS

from spyker.placement import Topology

START, SECONDS, RECONNECT = 1.0, 2.0, 1.0
SLACK = 0.2  # what was in a queue before, and the longest way of a message


def table(algorithm: str, region: int | None = 1) -> dict[str, Any]:
    """Three regions with two, three and two clients."""
    world: dict[str, Any] = {
        "regions": ["a", "b", "c"],
        "clients": [2, 3, 2],
        "latency-ms": [[1.0, 31.0, 47.0], [29.0, 2.0, 83.0], [43.0, 79.0, 3.0]],
    }
    if region is not None:
        world["outage"] = {"region": region, "start": START, "seconds": SECONDS}
    return {
        "algorithm": algorithm,
        "duration": 8.0,
        "task": {"name": "quadratic", "dimension": 3},
        "world": world,
        "training": {"rate": 0.3, "delay-ms": {"mean": 60.0, "std": 10.0}},
        "evaluation": {"interval": 0.5},
    }


def inside(region: int) -> set[int]:
    """The clients of a region."""
    return ({0, 1}, {2, 3, 4}, {5, 6})[region]


@pytest.mark.parametrize("region", [0, 1])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_nothing_crosses_while_a_region_is_cut_off_and_all_goes_on_afterwards(
    emulate: Any, algorithm: str, region: int
) -> None:
    facts, summary = emulate(table(algorithm, region))
    ends = START + SECONDS
    quiet = [f for f in facts if START + SLACK < f["t"] < ends]
    later = [f for f in facts if f["t"] > ends + RECONNECT]
    single = ALGORITHMS[algorithm].topology is Topology.SINGLE
    homes = {k: 0 if single else r for r in range(3) for k in inside(r)}
    server_regions = {0: 0} if single else {i: i for i in range(3)}
    for fact in quiet:
        if fact["kind"] == "update":
            across = (server_regions[fact["server"]] == region) != (fact["client"] in inside(region))
            assert not across, fact
        if fact["kind"] == "merge":
            assert (fact["server"] == region) == (fact["peer"] == region), fact
        assert fact["kind"] != "cloud-round", "the cloud waits for all of its edges"
    heard = {f["client"] for f in later if f["kind"] == "update"}
    assert heard == set(homes), "whoever was cut off is heard again"
    assert summary["finished"]


@pytest.mark.parametrize("algorithm", ["spyker", "fedasync"])
def test_life_goes_on_on_both_sides(emulate: Any, algorithm: str) -> None:
    facts, _ = emulate(table(algorithm))
    quiet = {f["client"] for f in facts if f["kind"] == "update" and START + SLACK < f["t"] < START + SECONDS}
    assert quiet == ({*range(7)} if algorithm == "spyker" else inside(0) | inside(2))


def test_what_was_trained_meanwhile_is_delivered_afterwards(emulate: Any) -> None:
    slow = table("fedasync")
    slow["training"]["delay-ms"] = [300.0] * 7  # so that all are training when it begins
    facts, _ = emulate(slow)
    ends = START + SECONDS + RECONNECT
    first = {
        k: min(f["t"] for f in facts if f["kind"] == "update" and f["client"] == k and f["t"] > START + SLACK)
        for k in inside(1)
    }
    # An answer that is held arrives one way back and forth after the greeting; no new training is made before.
    assert all(ends < t < ends + 0.1 for t in first.values()), first


def test_before_it_begins_nobody_can_tell(emulate: Any) -> None:
    with_outage, without = (emulate(table("spyker", region))[0] for region in (1, None))
    before = [[f for f in facts if f["t"] < START] for facts in (with_outage, without)]
    assert before[0] == before[1]
    assert with_outage != without
