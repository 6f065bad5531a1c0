"""Algorithms of the package whose clients 0, 10, 20 and so on answer with something else than what they trained."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from spyker.algorithms.fedavg import FedAvg
from spyker.algorithms.spyker import Spyker
from spyker.algorithms.stride import Stride
from spyker.protocol.client import Client
from spyker.protocol.messages import Action
from spyker.protocol.server import Server
from spyker.vectors import Vector, length


def lie(kind: str, given: Vector, trained: Vector, seed: int) -> Vector:
    """What a liar says."""
    if kind == "huge":
        return np.full_like(trained, 9e29)  # the border refuses 1e30
    if kind == "negative":
        return given - (trained - given)
    noise = np.random.default_rng(seed).standard_normal(trained.size, np.float32)
    return given + np.float32(length(trained - given) / length(noise)) * noise


def with_liars(algorithm: type[Server], kind: str) -> type[Server]:
    """An algorithm, and the lie of one client in ten."""

    class Liar(algorithm.client):  # type: ignore[name-defined, misc]
        def trained(
            self,
            weights: Vector,
            examples: int | None = None,
            metrics: Mapping[str, float] | None = None,
            evaluation: Mapping[str, float] | None = None,
        ) -> list[Action]:
            if self.id % 10 == 0 and isinstance(self, Client) and self.received is not None:
                weights = lie(kind, self.received.weights, weights, self.step)
            actions: list[Action] = super().trained(weights, examples, metrics, evaluation)
            return actions

    title = f"{kind.title()}{algorithm.__name__}"
    return type(title, (algorithm,), {"client": Liar, "section": algorithm.section, "__module__": __name__})


HugeStride, NegativeStride, NoiseStride = (with_liars(Stride, kind) for kind in ("huge", "negative", "noise"))
HugeSpyker, NegativeSpyker, NoiseSpyker = (with_liars(Spyker, kind) for kind in ("huge", "negative", "noise"))
HugeFedAvg, NegativeFedAvg, NoiseFedAvg = (with_liars(FedAvg, kind) for kind in ("huge", "negative", "noise"))
