"""FedBuff (Nguyen et al.: Federated Learning with Buffered Asynchronous Aggregation, 2022).

Clients send differences. One server sums them, with weights that decrease with staleness, and adds their mean to its
model after every K updates. It returns the current model to each client at once.

The paper's secure aggregation is omitted.
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

    buffer: int = parameter(10, "K: updates per step of the server", at_least=1)
    server_rate: float = parameter(1.0, "η_g: server learning rate", above=0)
    staleness_exponent: float = parameter(
        0.5, "a: weight (1 + τ)^(-a) of an update that is τ steps old", at_least=0, at_most=100
    )


class FedBuff(Server):
    """The single server. Its age counts steps of the model."""

    topology = Topology.SINGLE
    Parameters: ClassVar[type[Any]] = FedBuffParameters
    client = DeltaClient

    def __init__(self, id: int, setup: Setup, roster: Mapping[int, int]) -> None:
        super().__init__(id, setup, roster)
        self.sum = Weights.zeros(setup.weights)  # Σ s(τ) Δ_k
        self.count = 0  # number of updates in ``sum``
        self._buffers = setup.buffers

    def receive(self, sender: int, message: ClientMessage | PeerMessage) -> None:
        """Add an update to the buffer, make a step if it is full, and send the current model to the sender."""
        if isinstance(message, Update):
            staleness = max(
                0.0, self.age - message.age
            )  # after a restart the server's age may be lower than the task's
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
        """Return s(τ)."""
        return math.pow(1 + staleness, -self.parameters.staleness_exponent)

    def move(self, total: Vector) -> None:
        """W ← W + η_g/K · Σ s(τ) Δ_k."""
        rate = self.parameters.server_rate
        self.weights.add(buffers_once(total, self._buffers, rate), rate / self.count)
