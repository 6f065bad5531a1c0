"""An algorithm of one's own: FedBuff (Nguyen et al.: Federated Learning with Buffered Asynchronous Aggregation, 2022).

Clients answer with how far their training went. One server adds these up, the less the staler they are, and moves its
model by their mean once there are K of them. It answers every client at once.

Run it from this folder; nothing else has to know of it, neither here nor in a deployment:

    spyker compare --algorithms spyker,fedasync,fedbuff:FedBuff --set fedbuff.buffer=10 --task digits --duration 20
    spyker up --algorithm fedbuff:FedBuff --clients 8 --duration 10
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from spyker import Server
from spyker.parameters import parameter
from spyker.placement import Topology
from spyker.protocol.client import Difference
from spyker.protocol.facts import RoundEnded, UpdateApplied
from spyker.protocol.messages import ClientMessage, Join, PeerMessage, Update
from spyker.protocol.server import Setup
from spyker.protocol.weights import Weights


@dataclass(frozen=True, slots=True)
class FedBuffParameters:
    """Keys of ``[fedbuff]`` in a scenario file."""

    buffer: int = parameter(10, "K: how many updates the server collects before it moves", at_least=1)
    server_rate: float = parameter(1.0, "η_g: how far it then moves along their mean", above=0)
    staleness_exponent: float = parameter(0.5, "a: an update that is τ steps old counts (1 + τ)^(-a)", at_least=0)


class FedBuff(Server):
    """The only server. Its age counts the steps of its model."""

    topology = Topology.SINGLE
    Parameters = FedBuffParameters
    parameters: FedBuffParameters
    client = Difference

    def __init__(self, id: int, setup: Setup, roster: Mapping[int, int]) -> None:
        super().__init__(id, setup, roster)
        self.sum = Weights.zeros(setup.weights)  # Σ s(τ) Δ_k
        self.count = 0  # of the updates in it

    def receive(self, sender: int, message: ClientMessage | PeerMessage) -> None:
        """Collect an update, move if there are enough, and answer. A newcomer is given the model."""
        if isinstance(message, Update):
            staleness = max(0.0, self.age - message.age)  # a restarted server may be younger than what it gave
            weight = math.pow(1 + staleness, -self.parameters.staleness_exponent)
            self.sum.add(message.weights, weight)
            self.count += 1
            self.version += 1
            self.record(UpdateApplied(self.id, sender, staleness, weight, self.age, self.version, self.rate))
            if self.count >= self.parameters.buffer:
                self.move()
        if isinstance(message, Update | Join):
            self.send_client(sender, self.model(self.rate))

    def move(self) -> None:
        """W ← W + η_g/K · Σ s(τ) Δ_k."""
        self.weights.add(self.sum.snapshot(), self.parameters.server_rate / self.count)
        self.sum, self.count = Weights.zeros(self.sum.snapshot()), 0
        self.age += 1
        self.record(RoundEnded(self.id, int(self.age)))
