"""HierFAVG (Liu, Zhang, Song, Letaief: Client-Edge-Cloud Hierarchical Federated Learning, 2020).

Every region has an edge server that runs FedAvg rounds with its clients. After every ``edge_rounds`` rounds all edges
send their models to the cloud, which averages them by data size and returns the result. All edges wait for it.

The paper does not consider departures. Here an edge without clients notifies the cloud, which does not wait for it
until the edge sends a model again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from spyker.algorithms.fedavg import FedAvg
from spyker.parameters import parameter
from spyker.placement import Topology
from spyker.protocol.facts import CloudRoundEnded
from spyker.protocol.masked_server import MASKING_MESSAGES, MaskedServer
from spyker.protocol.messages import Action, ClientMessage, EdgeIdle, EdgeModel, PeerMessage, PeerModel
from spyker.protocol.server import Server, Setup, Work
from spyker.robust.claimed_sizes import ClaimedData
from spyker.vectors import accumulate


@dataclass(frozen=True, slots=True)
class HierFAVGParameters:
    """The parameters of HierFAVG."""

    edge_rounds: int = parameter(2, "κ₂: edge rounds per cloud round", at_least=1)
    fraction: float = parameter(1.0, "fraction of an edge's clients that train in each round", above=0, at_most=1)


class Cloud(MaskedServer):
    """The cloud server, which averages the edges' models and has no clients."""

    receives: ClassVar[tuple[type[PeerMessage], ...]] = (EdgeModel, EdgeIdle)
    sends: ClassVar[tuple[type[PeerMessage], ...]] = (PeerModel,)

    def __init__(self, id: int, setup: Setup, roster: Mapping[int, int]) -> None:
        super().__init__(id, setup, roster)
        self.round = 0
        self.models: dict[int, EdgeModel] = {}
        self.away: set[int] = set()  # edges without clients

    def start(self) -> Iterator[Action]:
        """Return no actions: the edges start."""
        return iter(())

    def receive(self, sender: int, message: ClientMessage | PeerMessage) -> None:
        """Store an edge's model; average when the models of all edges with clients have arrived."""
        match message:
            case EdgeModel():
                self.away.discard(sender)
                self.models[sender] = message
            case EdgeIdle():
                self.away.add(sender)
        self.check_models()

    def check_models(self) -> None:
        """End the round if all edges that have clients and are not suspected have reported."""
        if self.models and self.complete(self.models.keys() | self.away):
            self.end_round()

    def sighted(self) -> None:
        """Stop waiting for suspected edges."""
        self.check_models()

    def reformed(self, before: Sequence[int], *, leads: bool) -> None:
        """Continue with the edges of the new epoch."""
        self.models = {j: model for j, model in self.models.items() if j in self.ring}
        self.away &= set(self.ring)
        self.check_models()

    def end_round(self) -> None:
        """Average the models and send the result to all edges."""
        claims = {j: ClaimedData(model.size, model.clients) for j, model in self.models.items()}
        sizes = self.update_filter.bounded_data(claims)  # D_j
        size = sum(sizes.values())
        self.average([(model, sizes[j] / size) for j, model in sorted(self.models.items())])
        self.models.clear()
        self.round += 1
        self.record(CloudRoundEnded(self.round))
        self.send_all_servers(self.result())

    def average(self, models: Sequence[tuple[EdgeModel, float]]) -> None:
        """W ← Σ D_j/D · W_j."""
        average = np.zeros_like(self.weights.snapshot())
        self.age = 0.0
        for model, share in models:
            accumulate(average, model.weights, share)
            self.age += model.age * share
        self.weights.replace(average)

    def result(self) -> PeerModel:
        """Return the message with the result for the edges."""
        return PeerModel(self.weights.snapshot(), self.age, self.round)

    def work(self, sender: int, message: ClientMessage | PeerMessage) -> Work:
        """Charge the aggregation to the message that ends the round."""
        if isinstance(message, MASKING_MESSAGES):
            return super().work(sender, message)
        ends = self.models or isinstance(message, EdgeModel)
        return Work.AVERAGE if ends and self.complete(self.models.keys() | self.away | {sender}) else Work.NOTHING


class Edge(FedAvg):
    """An edge server: FedAvg below, the cloud above."""

    name, title = "hierfavg", "HierFAVG"
    topology = Topology.CLOUD
    Parameters: ClassVar[type[Any]] = HierFAVGParameters
    receives: ClassVar[tuple[type[PeerMessage], ...]] = (PeerModel,)
    sends: ClassVar[tuple[type[PeerMessage], ...]] = (EdgeModel, EdgeIdle)
    above: ClassVar[type[Cloud]] = Cloud

    @classmethod
    def build(cls, id: int, setup: Setup, roster: Mapping[int, int]) -> Server:
        """Create an edge, or the cloud, whose number follows the initial edges."""
        return cls(id, setup, roster) if id != setup.servers else cls.above(id, setup, roster)

    @classmethod
    def between(cls, sender: int, receiver: int, servers: int) -> tuple[type[PeerMessage], ...]:
        """Return the message classes between an edge and the cloud; edges send nothing to each other."""
        return cls.above.receives if receiver == servers else cls.receives if sender == servers else ()

    def __init__(self, id: int, setup: Setup, roster: Mapping[int, int]) -> None:
        super().__init__(id, setup, roster)
        self.waiting = False  # for the cloud
        self._cloud = setup.servers  # the number after the initial edges

    def begin_round(self) -> None:
        """Start a round as in FedAvg; without clients, notify the cloud."""
        super().begin_round()
        if self.idle:
            self.send_server(self._cloud, EdgeIdle())

    def after_round(self) -> None:
        """After every ``edge_rounds`` rounds, send the model to the cloud and wait."""
        if self.round % self.parameters.edge_rounds or self._cloud in self.suspected:
            self.begin_round()
        else:
            self.waiting = True
            self.ask()

    def ask(self) -> None:
        """Send the edge's model to the cloud."""
        size = self.whole_weight(max(1, sum(self.sizes.values())))  # an edge without clients still has a model
        self.send_server(self._cloud, self.report(round(size), round(self.whole_weight(max(1, len(self.sizes))))))

    def sighted(self) -> None:
        """Continue without the cloud while it is suspected."""
        if self.waiting and self._cloud in self.suspected:
            self.waiting = False
            self.begin_round()

    def reformed(self, before: Sequence[int], *, leads: bool) -> None:
        """Report again: the cloud may be a new process without state."""
        if self.waiting:
            self.ask()
        elif self.idle:
            self.send_server(self._cloud, EdgeIdle())

    def report(self, size: int, clients: int) -> EdgeModel:
        """Return the edge's model, weighted by ``size`` data points."""
        return EdgeModel(self.weights.snapshot(), self.age, size, clients=clients)

    def receive(self, sender: int, message: ClientMessage | PeerMessage) -> None:
        """Replace the model by the cloud's and start the next round.

        An idle edge replaces its model, too, but not while its clients train an older one.
        """
        if isinstance(message, PeerModel):
            if self.waiting or self.idle:
                self.adopt(message)
            if self.waiting:
                self.waiting = False
                self.begin_round()
        else:
            super().receive(sender, message)

    def adopt(self, message: PeerModel) -> None:
        """Replace the model by the cloud's."""
        self.weights.replace(message.weights)
        self.age = message.age
