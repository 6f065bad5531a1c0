"""FedAsync (Xie, Koyejo, Gupta: Asynchronous Federated Optimization, 2019).

One server mixes every client's answer into its model as soon as it arrives, the less the staler it is, and sends the
new model back at once. The paper's proximal term is part of local training: ``proximal`` under ``[training]``.
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

    client_rate: float = parameter(0.6, "α: how far a fresh client update moves the server", above=0, at_most=1)
    staleness: str = parameter(
        "polynomial",
        "the weight s(τ) of an update that is τ old: constant, polynomial or hinge",
        choices=("constant", "polynomial", "hinge"),
    )
    staleness_exponent: float = parameter(0.5, "a of polynomial, (1 + τ)^(-a)", at_least=0, at_most=100)
    hinge_slope: float = parameter(10.0, "a of hinge, 1 / (1 + a (τ - b)) once τ exceeds b", at_least=0)
    hinge_delay: float = parameter(4.0, "b of hinge: up to this staleness an update counts in full", at_least=0)

    def weight(self, staleness: float) -> float:
        """s(τ)."""
        match self.staleness:
            case "polynomial":
                return math.pow(1 + staleness, -self.staleness_exponent)
            case "hinge":
                return 1 / (1 + self.hinge_slope * max(0.0, staleness - self.hinge_delay))
            case _:
                return 1.0


class FedAsync(Server):
    """The only server."""

    topology = Topology.SINGLE
    Parameters = FedAsyncParameters
    parameters: FedAsyncParameters

    def receive(self, sender: int, message: ClientMessage | PeerMessage) -> None:
        """Mix an update in; answer it, or a newcomer, with the current model. Who leaves is not missed."""
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
