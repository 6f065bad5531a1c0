"""Waiting for what real processes do."""

from __future__ import annotations

import time
from collections.abc import Callable

from spyker.net.local_cluster import LocalCluster
from spyker.records import FACTS

WAIT_SECONDS = 120.0


def waiting(condition: Callable[..., bool], problem: str) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(problem)
        time.sleep(0.05)


def listening(cluster: LocalCluster, server: int, times: int) -> None:
    """Wait until a server has started to listen this many times."""
    path = cluster.folder / f"server-{server}.log"
    waiting(
        lambda: path.exists() and path.read_text("utf-8", "replace").count('"event": "listening"') >= times,
        f"server {server} does not listen: see {path}",
    )


def applying(cluster: LocalCluster, server: int, count: int) -> None:
    """Wait until a server has applied this many updates more."""
    path = cluster.record(server) / FACTS

    def applied() -> int:
        return path.read_bytes().count(b'"update"') if path.exists() else 0

    before = applied()
    waiting(lambda: applied() >= before + count, f"server {server} applies no updates: see {path}")
