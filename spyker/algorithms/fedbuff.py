"""FedBuff (Nguyen et al.: Federated Learning with Buffered Asynchronous Aggregation, 2022).

Clients send differences. One server sums them, with weights that decrease with staleness, and adds their mean to its
model after every K updates. It returns the current model to each client at once.

With secure aggregation the weights are rounded to sixteenths, and updates that arrive while a sum is being opened wait
for the next one. (The paper uses trusted hardware.)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from spyker.parameters import parameter
from spyker.placement import Topology
from spyker.privacy.masking import LEVELS, MaskedSum
from spyker.protocol.buffers import buffers_once
from spyker.protocol.client import DeltaClient
from spyker.protocol.facts import RoundEnded, UpdateApplied
from spyker.protocol.messages import ClientMessage, Join, MaskedUpdate, PeerMessage, Update
from spyker.protocol.noisy_server import NoisyServer
from spyker.protocol.server import Setup
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


class FedBuff(NoisyServer):
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
        if isinstance(message, Update | MaskedUpdate):
            staleness = max(
                0.0, self.age - message.age
            )  # after a restart the server's age may be lower than the task's
            weight = self.weigh(staleness)
            if self.sums_updates:
                weight = self.add_to_sum(sender, message, max(weight, 1 / LEVELS) if self.masks else weight)
            elif isinstance(message, Update):
                self.sum.add(message.weights, weight)
            self.count += 1
            self.version += 1
            self.record(UpdateApplied(self.id, sender, staleness, weight, self.age, self.version, self.rate))
            self.check_buffer()
        if isinstance(message, Update | MaskedUpdate | Join):
            self.send_client(sender, self.model(self.rate))

    def check_buffer(self) -> None:
        """Make a step if the buffer is full, once its sum has been opened."""
        if self.count < self.parameters.buffer or self.opening:
            return
        if self.sums_updates:
            self.count = 0
            self.sum_updates()
        else:
            self.step(self.sum.snapshot(), self.count)
            self.sum, self.count = Weights.zeros(self.sum.snapshot()), 0

    def summed(self, total: MaskedSum) -> None:
        """Make a step with a sum that was opened or has noise, and the next one if the buffer is full again."""
        if total.vector is not None:
            self.step(total.vector, round(self.whole_weight(len(total.clients))))
        self.check_buffer()

    @property
    def cohort(self) -> float:
        """Number of updates per step."""
        return float(self.parameters.buffer)

    def step(self, total: Vector, count: int) -> None:
        """Move the model by the sum of this many updates."""
        self.move(total, count)
        self.age += 1
        self.record(RoundEnded(self.id, int(self.age)))

    def weigh(self, staleness: float) -> float:
        """Return s(τ)."""
        return math.pow(1 + staleness, -self.parameters.staleness_exponent)

    def move(self, total: Vector, count: int) -> None:
        """W ← W + η_g/K · Σ s(τ) Δ_k."""
        rate = self.parameters.server_rate
        self.weights.add(buffers_once(total, self._buffers, rate), rate / count)
