"""What Stride promises for whole runs: slow clients hold nobody up and are not shut out, rates need not be right."""

from collections import Counter
from itertools import pairwise
from typing import Any

import pytest


def regions(
    n: int, each: int, delays: list[float], rate: float = 0.05, apart: float = 50.0, **more: Any
) -> dict[str, Any]:
    """Regions whose clients are 2 ms from their server."""
    world = {
        "regions": [f"region {i}" for i in range(n)],
        "clients": [each] * n,
        "latency-ms": [[2.0 if i == j else apart for j in range(n)] for i in range(n)],
    }
    table = {
        "algorithm": "stride",
        "duration": 10.0,
        "world": world,
        "training": {"rate": rate, "delay-ms": delays},
        "evaluation": {"interval": 0.5},
    }
    return table | more


def test_a_client_that_is_fifty_times_slower_holds_nobody_up(emulate: Any) -> None:
    """Rounds take what the others take; and what the slow one answers counts, once for each time that it answers."""
    quick, slow = 100.0, 5000.0
    table = regions(1, 5, [quick] * 4 + [slow], task={"name": "quadratic"}, duration=11.0)
    facts, summary = emulate(table)
    ends = [fact["t"] for fact in facts if fact["kind"] == "round"]
    assert max(b - a for a, b in pairwise(ends)) < 1.5 * quick / 1000
    answers = Counter(fact["client"] for fact in facts if fact["kind"] == "update")
    assert answers[4] == 2
    assert min(answers[k] for k in range(4)) >= 70
    patient, _ = emulate(table | {"stride": {"patience": 1000.0}})
    assert sum(fact["kind"] == "round" for fact in patient) == 2, "whoever waits for it has two rounds"
    assert summary["finished"]


def learnt(emulate: Any, table: dict[str, Any], rare: list[int], asked: list[int]) -> float:
    """How many digits of the asked labels are known in the end, where only ``rare`` clients have labels 8 and 9."""
    _, summary = emulate(table | {"task": {"name": "label_task:make", "rare": rare, "asked": asked}})
    return float(summary["final"]["averaged"])


@pytest.mark.parametrize("clip", [0.0, 0.6])
def test_what_only_slow_clients_know_is_learnt(emulate: Any, clip: float) -> None:
    """The slowest fifth of the clients takes five times as long as the others, and is missing in most rounds."""
    table = regions(2, 10, ([100.0] * 8 + [500.0] * 2) * 2, stride={"clip": clip}, rate=0.1)
    assert learnt(emulate, table, rare=[8, 9, 18, 19], asked=[8, 9]) > 0.5


@pytest.mark.parametrize("rate", [0.025, 0.05, 0.1])
def test_a_rate_that_is_twice_too_large_or_too_small_still_learns(emulate: Any, rate: float) -> None:
    """Every client has two of eight labels."""
    table = regions(2, 8, [100.0] * 16, rate=rate, duration=5.0)
    assert learnt(emulate, table, rare=[], asked=list(range(8))) > 0.9


@pytest.mark.parametrize(
    ("servers", "crowd", "rate"),
    [(1, 1, 0.4), (4, 4, 0.1), (16, 16, 0.1), (16, 1, 0.1)],
)
def test_a_large_rate_does_not_drive_servers_apart(emulate: Any, servers: int, crowd: int, rate: float) -> None:
    """They are 100 ms from each other, and rounds take 150 ms."""
    delays = [150.0] * 4 * servers
    table = regions(
        servers, 4, delays, rate, 100.0, task={"name": "quadratic"}, stride={"tree-threshold": crowd}, duration=20.0
    )
    _, summary = emulate(table)
    assert summary["final"]["mean"] > 0.5
