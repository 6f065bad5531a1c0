"""FedAsync (Xie, Koyejo, Gupta: Asynchronous Federated Optimization, 2019).

One server mixes each update into its model on arrival, with a weight that decreases with staleness, and returns the
new model at once. The paper's proximal term is part of local training: ``proximal`` in ``[training]``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from spyker.parameters import parameter
from spyker.placement import Topology
from spyker.protocol.facts import UpdateApplied
from spyker.protocol.messages import ClientMessage, Leave, PeerMessage, Update
from spyker.protocol.server import Server


@dataclass(frozen=True, slots=True)
class FedAsyncParameters:
    """The parameters of FedAsync."""

    client_rate: float = parameter(0.6, "α: mixing weight of a fresh update", above=0, at_most=1)
    staleness: str = parameter(
        "polynomial",
        "weight s(τ) of an update of staleness τ: constant, polynomial or hinge",
        choices=("constant", "polynomial", "hinge"),
    )
    staleness_exponent: float = parameter(0.5, "a of polynomial, (1 + τ)^(-a)", at_least=0, at_most=100)
    hinge_slope: float = parameter(10.0, "a of hinge, 1 / (1 + a (τ - b)) once τ exceeds b", at_least=0)
    hinge_delay: float = parameter(4.0, "b of hinge: up to this staleness an update has full weight", at_least=0)

    def weight(self, staleness: float) -> float:
        """Return s(τ)."""
        match self.staleness:
            case "polynomial":
                return math.pow(1 + staleness, -self.staleness_exponent)
            case "hinge":
                return 1 / (1 + self.hinge_slope * max(0.0, staleness - self.hinge_delay))
            case _:
                return 1.0


class FedAsync(Server):
    """The single server."""

    topology = Topology.SINGLE
    Parameters = FedAsyncParameters
    parameters: FedAsyncParameters

    def receive(self, sender: int, message: ClientMessage | PeerMessage) -> None:
        """Mix an update into the model; send the current model to the sender."""
        if isinstance(message, Leave):
            return
        if isinstance(message, Update):
            staleness = max(0.0, self.age - message.age)
            weight = self.parameters.weight(staleness)
            self.weights.mix(message.weights, self.parameters.client_rate * weight)
            self.age += 1
            self.version += 1
            self.record(UpdateApplied(self.id, sender, staleness, weight, self.age, self.version, self.rate))
        self.send_client(sender, self.model(self.rate))
