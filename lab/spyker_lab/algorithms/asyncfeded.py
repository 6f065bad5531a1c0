"""AsyncFedED (Wang, Yang, He, Shi, Chen: AsyncFedED: Asynchronous Federated Learning with Euclidean Distance based
Adaptive Weight Aggregation, 2022).

Every answer moves the server at once. How stale it is, is measured in space and not in time: how far the model has
moved since the client was given it, in units of how far the client's training went.

To know the first, the server keeps the model that each client was given: the memory, and the checkpoints, of as many
models as there are clients. After a crash that is the last one it remembers, not always the one that was trained.

The paper's server also chooses each client's number of local epochs, so that staleness stays near a target. Here all
algorithms share one local training, whose epochs the scenario says; that rule is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spyker.parameters import parameter
from spyker.placement import Topology
from spyker.protocol.client import DeltaClient
from spyker.protocol.facts import UpdateApplied
from spyker.protocol.messages import ClientMessage, Leave, PeerMessage, Update
from spyker.protocol.server import Server, Setup
from spyker.vectors import length


@dataclass(frozen=True, slots=True)
class AsyncFedEDParameters:
    """The parameters of AsyncFedED."""

    server_rate: float = parameter(0.05, "λ: an update of staleness γ counts λ/(γ + ε)", above=0)
    epsilon: float = parameter(1.0, "ε: the staleness at which an update counts half as much as a fresh one", above=0)


class AsyncFedED(Server):
    """The only server."""

    topology = Topology.SINGLE
    Parameters = AsyncFedEDParameters
    parameters: AsyncFedEDParameters
    client = DeltaClient

    def __init__(self, id: int, setup: Setup, roster: Mapping[int, int]) -> None:
        super().__init__(id, setup, roster)
        self.given = dict.fromkeys(roster, self.weights.snapshot())  # by client

    def receive(self, sender: int, message: ClientMessage | PeerMessage) -> None:
        """Apply an update; answer it, or a newcomer, with the current model, and remember that."""
        if isinstance(message, Leave):
            self.given.pop(sender, None)
            return
        if isinstance(message, Update):
            self.apply(sender, message)
        model = self.model(self.rate)
        self.given[sender] = model.weights
        self.send_client(sender, model)

    def apply(self, sender: int, update: Update) -> None:
        """W ← W + λ/(γ + ε)·Δ_k, where γ = ‖W − W_given‖ / ‖Δ_k‖."""
        p, now = self.parameters, self.weights.snapshot()
        own = p.epsilon * length(update.weights)
        moved = length(now - self.given.get(sender, now))
        weight = own / (moved + own) if own else 0.0  # ε/(γ + ε), also where γ is infinite
        self.weights.add(update.weights, p.server_rate / p.epsilon * weight)
        staleness = max(0.0, self.age - update.age)
        self.age += 1
        self.version += 1
        self.record(UpdateApplied(self.id, sender, staleness, weight, self.age, self.version, self.rate))
