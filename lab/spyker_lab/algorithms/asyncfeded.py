"""AsyncFedED (Wang, Yang, He, Shi, Chen: AsyncFedED: Asynchronous Federated Learning with Euclidean Distance based
Adaptive Weight Aggregation, 2022).

The server applies each update on arrival. Staleness is a ratio of distances: the distance that the model has moved
since the client received it, divided by the norm of the client's update.

The server stores the model that each client received: one model per client, in memory and in checkpoints. After a
crash this is the last stored model, which may differ from the trained one.

The paper's server also adapts each client's number of local epochs. Here the scenario sets it for all algorithms, so
that rule is omitted.
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

    server_rate: float = parameter(0.05, "λ: weight λ/(γ + ε) of an update of staleness γ", above=0)
    epsilon: float = parameter(1.0, "ε: staleness at which an update has half the weight of a fresh one", above=0)


class AsyncFedED(Server):
    """The single server."""

    topology = Topology.SINGLE
    Parameters = AsyncFedEDParameters
    parameters: AsyncFedEDParameters
    client = DeltaClient

    def __init__(self, id: int, setup: Setup, roster: Mapping[int, int]) -> None:
        super().__init__(id, setup, roster)
        self.given = dict.fromkeys(roster, self.weights.snapshot())  # by client

    def receive(self, sender: int, message: ClientMessage | PeerMessage) -> None:
        """Apply an update; send the current model to the sender, and store it."""
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
