"""FedBuff (Nguyen et al.: Federated Learning with Buffered Asynchronous Aggregation, 2022).

Clients answer with how far their training went. One server adds these up, the less the staler they are, and moves its
model by their mean once there are K of them. It answers every client at once.

The paper's secure aggregation is none of an algorithm's business here, and left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from spyker.parameters import parameter
from spyker.placement import Topology
from spyker.protocol.buffers import buffers_once
from spyker.protocol.client import DeltaClient
from spyker.protocol.facts import RoundEnded, UpdateApplied
from spyker.protocol.messages import ClientMessage, Join, PeerMessage, Update
from spyker.protocol.server import Server, Setup
from spyker.protocol.weights import Weights
from spyker.vectors import Vector


@dataclass(frozen=True, slots=True)
class FedBuffParameters:
    """The parameters of FedBuff."""

    buffer: int = parameter(10, "K: how many updates the server collects before it moves", at_least=1)
    server_rate: float = parameter(1.0, "η_g: how far it then moves along their mean", above=0)
    staleness_exponent: float = parameter(
        0.5, "a: an update that is τ steps old counts (1 + τ)^(-a)", at_least=0, at_most=100
    )


class FedBuff(Server):
    """The only server. Its age counts the steps of its model."""

    topology = Topology.SINGLE
    Parameters: ClassVar[type[Any]] = FedBuffParameters
    client = DeltaClient

    def __init__(self, id: int, setup: Setup, roster: Mapping[int, int]) -> None:
        super().__init__(id, setup, roster)
        self.sum = Weights.zeros(setup.weights)  # Σ s(τ) Δ_k
        self.count = 0  # of the updates in it
        self._buffers = setup.buffers

    def receive(self, sender: int, message: ClientMessage | PeerMessage) -> None:
        """Collect an update, move if there are enough, and answer. A newcomer is given the model."""
        if isinstance(message, Update):
            staleness = max(0.0, self.age - message.age)  # a restarted server may be younger than what it gave
            weight = self.weigh(staleness)
            self.sum.add(message.weights, weight)
            self.count += 1
            self.version += 1
            self.record(UpdateApplied(self.id, sender, staleness, weight, self.age, self.version, self.rate))
            if self.count >= self.parameters.buffer:
                self.move(self.sum.snapshot())
                self.sum, self.count = Weights.zeros(self.sum.snapshot()), 0
                self.age += 1
                self.record(RoundEnded(self.id, int(self.age)))
        if isinstance(message, Update | Join):
            self.send_client(sender, self.model(self.rate))

    def weigh(self, staleness: float) -> float:
        """s(τ)."""
        return math.pow(1 + staleness, -self.parameters.staleness_exponent)

    def move(self, total: Vector) -> None:
        """W ← W + η_g/K · Σ s(τ) Δ_k."""
        rate = self.parameters.server_rate
        self.weights.add(buffers_once(total, self._buffers, rate), rate / self.count)
