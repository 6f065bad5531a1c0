"""What an exchange between many servers costs, and what comes of it: Stride through a tree, Stride among all, Spyker.

Every server has four clients and is a region of its own, 100 ms from every other and 2 ms from its clients. The task is
``quadratic``. A client's optimum is far from the mean of all, so servers that do not exchange get nowhere near it.
Counted is what servers send each other between the beginnings of two exchanges; time is virtual. One score is the mean
of the servers' scores, the other that of the mean of their models. Momentum carries models past their goal and back, so
a target counts as reached when the score stays above it until the end.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any
from unittest import mock

from benchmarks.measure import Result
from spyker.config.scenario import load
from spyker.engines.start_engine import start_engine
from spyker.protocol.codec import schema_of
from spyker.protocol.messages import Message, PeerMessage
from spyker.records import Evaluated
from spyker.sim.simulate import simulate
from spyker.sim.world import Simulation
from spyker.tasks.registry import resolve

SERVERS = (4, 16, 64, 100)
CLIENTS, DIMENSION = 4, 1_000
TARGET, SECONDS = 0.7, 20.0


class Count:
    """Replaces the simulation's count of messages, and stores the counts at the start of each exchange."""

    def __init__(self) -> None:
        self.models = self.bytes = self.exchange = 0
        self.begun: list[tuple[int, int]] = []
        self.size = Simulation._size

    def __call__(self, world: Simulation, message: Message) -> int:
        size = self.size(world, message)
        if isinstance(message, PeerMessage):
            bid = getattr(message, "bid", 0)
            if bid > self.exchange:
                self.exchange = bid
                self.begun.append((self.models, self.bytes))
            self.models += bool(schema_of(type(message)).arrays)
            self.bytes += size
        return size

    def per_exchange(self) -> tuple[float, float]:
        """Return models and bytes per exchange."""
        (models, size), (last_models, last_size) = self.begun[0], self.begun[-1]
        exchanges = len(self.begun) - 1
        return (last_models - models) / exchanges, (last_size - size) / exchanges


def measure() -> list[Result]:
    results = []
    for n in SERVERS:
        runs = {
            "tree": one(n, "stride", {"stride.tree-threshold": 1}),
            "all_to_all": one(n, "stride", {"stride.tree-threshold": n}),
            "spyker": one(n, "spyker", {}),
        }
        tree, every, spyker = runs.values()
        details = {f"{name}_{key}": value for name, simulate in runs.items() for key, value in simulate.items()}
        models = tree["models"] / every["models"]
        results += [
            Result(f"models per exchange, tree / all to all, {n} servers", models, 2.1 / n, at_most=True),
            Result(f"time, Stride's tree / all to all, {n} servers", tree["seconds"] / every["seconds"], None),
            Result(f"time, Stride / Spyker, {n} servers", every["seconds"] / spyker["seconds"], None, details=details),
        ]
    return results


def one(servers: int, algorithm: str, parameters: dict[str, Any]) -> dict[str, float]:
    """A run: models and kilobytes per exchange, exchanges per second, seconds to the target, scores of the last 5 s."""
    overrides = {
        "algorithm": algorithm,
        "duration": SECONDS,
        "task.dimension": DIMENSION,
        "world.regions": [f"region {i}" for i in range(servers)],
        "world.clients": [CLIENTS] * servers,
        "world.latency-ms": [[2.0 if i == j else 100.0 for j in range(servers)] for i in range(servers)],
        "evaluation.interval": 0.25,
    }
    scenario = resolve(load(None, overrides | parameters, task="quadratic"))
    task, engine = start_engine(scenario)
    count = Count()
    scores: list[tuple[float, Evaluated]] = []

    def sink(t: float, fact: Any, queue: int | None) -> None:
        if isinstance(fact, Evaluated):
            scores.append((t, fact))

    with engine, mock.patch.object(Simulation, "_size", lambda world, message: count(world, message)):
        simulate(scenario, task, engine, sink)
    models, size = count.per_exchange()
    late = [fact for t, fact in scores if t > SECONDS - 5]
    return {
        "models": models,
        "kilobytes": size / 1000,
        "exchanges_per_s": len(count.begun) / SECONDS,
        "first_s": next((t for t, fact in scores if fact.mean >= TARGET), float("inf")),
        "seconds": next((t for (_, before), (t, _) in reversed(list(pairwise(scores))) if before.mean < TARGET), 0.0),
        "servers": sum(fact.mean for fact in late) / len(late),
        "mean_model": sum(fact.averaged for fact in late) / len(late),
    }
