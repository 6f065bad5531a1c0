"""FedAsyncM: FedAsync with momentum at the server, and differences in place of models.

The algorithm combines three papers. The server applies each update on arrival, with a weight that decreases with
staleness (FedAsync); updates are differences (FedBuff); the server has Nesterov momentum (FedAvgM). Yu, Song, Wang and
Chitnis (Momentum Approximation in Asynchronous Private Federated Learning, 2024) show that staleness distorts such a
momentum, and correct it by a weighted sum of all earlier steps, which the server would have to store. This
implementation omits the correction.

With N clients, N updates correspond to one round of FedAvgM. Each update therefore has weight 1/N, and N updates decay
the momentum by μ; otherwise concurrent updates would add up to N times a round's step. With one client the rule equals
FedAvgM's. Ages and staleness count rounds of N updates, so an update is about one round old for any N.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from spyker.parameters import parameter
from spyker.placement import Topology
from spyker.protocol.buffers import buffers_once, without_buffers
from spyker.protocol.client import DeltaClient
from spyker.protocol.facts import UpdateApplied
from spyker.protocol.messages import ClientMessage, Leave, PeerMessage, Update
from spyker.protocol.server import Server, Setup
from spyker.protocol.weights import Weights


@dataclass(frozen=True, slots=True)
class FedAsyncMParameters:
    """The parameters of FedAsyncM."""

    server_rate: float = parameter(2.0, "c: server learning rate for N updates and their momentum", above=0)
    momentum: float = parameter(0.8, "μ: momentum decay per N updates", at_least=0, at_most=0.999)
    staleness_exponent: float = parameter(
        0.5, "a: weight (1 + τ)^(-a) of an update that is τ rounds old", at_least=0, at_most=100
    )


class FedAsyncM(Server):
    """The single server."""

    topology = Topology.SINGLE
    Parameters = FedAsyncMParameters
    parameters: FedAsyncMParameters
    client = DeltaClient

    def __init__(self, id: int, setup: Setup, roster: Mapping[int, int]) -> None:
        super().__init__(id, setup, roster)
        self.present = set(roster)  # the N clients that train
        self.momentum = Weights.zeros(setup.weights)  # m
        self._buffers = setup.buffers

    def receive(self, sender: int, message: ClientMessage | PeerMessage) -> None:
        """Apply an update; send the current model to the sender."""
        if isinstance(message, Leave):
            self.present.discard(sender)
            return
        self.present.add(sender)
        if isinstance(message, Update):
            self.apply(sender, message)
        self.send_client(sender, self.model(self.rate))

    def apply(self, sender: int, update: Update) -> None:
        """W ← W + c·(Δ + μ·m)/N, where Δ = s(τ)·(W_k − W) and m ← μ^(1/N)·m + Δ/N."""
        p, n = self.parameters, len(self.present)
        staleness = max(0.0, self.age - update.age)
        weight = math.pow(1 + staleness, -p.staleness_exponent)
        self.momentum.scale(math.pow(p.momentum, 1 / n))
        self.momentum.add(without_buffers(update.weights, self._buffers), weight / n)
        step = buffers_once(update.weights, self._buffers, p.server_rate)
        self.weights.add(step, p.server_rate * weight / n)
        self.weights.add(self.momentum.snapshot(), p.server_rate * p.momentum / n)
        self.age += 1 / n
        self.version += 1
        self.record(UpdateApplied(self.id, sender, staleness, weight, self.age, self.version, self.rate))
