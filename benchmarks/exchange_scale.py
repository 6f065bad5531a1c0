"""What an exchange between many servers costs, and what it is worth: Stride through a tree, Stride among all, Spyker.

Every server has four clients and is a region of its own, 100 ms from every other and 2 ms from its clients. The task is
``quadratic``. A client's optimum is far from the mean of all, so that servers which do not exchange get nowhere near
the target. Counted is what servers send each other between the beginnings of two exchanges; time is virtual.
"""

from __future__ import annotations

from typing import Any
from unittest import mock

from benchmarks.measure import Result
from spyker.config.scenario import load
from spyker.emulate.run import run
from spyker.emulate.world import Emulation
from spyker.learn.registry import resolve
from spyker.learn.start import start
from spyker.protocol.forms import declaration
from spyker.protocol.messages import Message, PeerMessage

SERVERS = (4, 16, 64, 100)
CLIENTS = 4
DIMENSION = 1_000
TARGET, SECONDS = 0.8, 12.0


class Count:
    """Takes the place of the world's own count of messages, and keeps what was sent when each exchange began."""

    def __init__(self) -> None:
        self.models = self.bytes = self.exchange = 0
        self.begun: list[tuple[int, int]] = []
        self.original = Emulation._size

    def size(self, world: Emulation, message: Message) -> int:
        size = self.original(world, message)
        if isinstance(message, PeerMessage):
            bid = getattr(message, "bid", 0)
            if bid > self.exchange:
                self.exchange = bid
                self.begun.append((self.models, self.bytes))
            self.models += bool(declaration(type(message)).arrays)
            self.bytes += size
        return size

    def per_exchange(self) -> tuple[float, float]:
        """Models and bytes."""
        (models, size), (last_models, last_size) = self.begun[0], self.begun[-1]
        exchanges = len(self.begun) - 1
        return (last_models - models) / exchanges, (last_size - size) / exchanges


def measure() -> list[Result]:
    results = []
    for n in SERVERS:
        tree = one(n, "stride", {"stride.crowd": 1})
        flat = one(n, "stride", {"stride.crowd": n})
        spyker = one(n, "spyker", {})
        details = {
            f"{name}_{key}": value
            for name, measured in (("tree", tree), ("all_to_all", flat), ("spyker", spyker))
            for key, value in measured.items()
        }
        name = f"{n} servers"
        models = tree["models"] / flat["models"]
        results.append(Result(f"models per exchange, tree / all to all, {name}", models, 2.1 / n, at_most=True))
        seconds = tree["seconds"] / flat["seconds"]
        results.append(Result(f"time to {TARGET}, tree / all to all, {name}", seconds, None))
        best = min(tree["seconds"], flat["seconds"]) / spyker["seconds"]
        results.append(Result(f"time to {TARGET}, Stride / Spyker, {name}", best, None, details=details))
    return results


def one(servers: int, algorithm: str, parameters: dict[str, Any]) -> dict[str, float]:
    """A run until its target is reached: models and kilobytes per exchange, exchanges, virtual seconds."""
    overrides = {
        "algorithm": algorithm,
        "duration": SECONDS,
        "task.dimension": DIMENSION,
        "world.regions": [f"region {i}" for i in range(servers)],
        "world.clients": [CLIENTS] * servers,
        "world.latency-ms": [[2.0 if i == j else 100.0 for j in range(servers)] for i in range(servers)],
        "training.rate": 0.2,
        "evaluation.interval": 0.1,
        "evaluation.targets": [TARGET, 0.9, 0.95],
    }
    scenario = resolve(load(None, overrides | parameters, task="quadratic"))
    task, engine = start(scenario)
    count = Count()
    with engine, mock.patch.object(Emulation, "_size", lambda world, message: count.size(world, message)):
        summary = run(scenario, task, engine, lambda t, fact, queue: None)
    models, size = count.per_exchange()
    reached = summary["time_to_target"][f"{TARGET}"]
    print(summary["time_to_target"], summary["final"]["mean"], flush=True)
    return {
        "models": models,
        "kilobytes": size / 1000,
        "exchanges": float(len(count.begun)),
        "seconds": float("inf") if reached is None else reached,
    }
