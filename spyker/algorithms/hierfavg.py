"""HierFAVG (Liu, Zhang, Song, Letaief: Client-Edge-Cloud Hierarchical Federated Learning, 2020).

Every region has an edge server that runs FedAvg rounds with its clients. After every ``edge_rounds`` rounds all edges
send their models to the cloud, which averages them by data size and sends the result back. Everybody waits for it.

The paper's clients never leave. Here an edge that all clients have left says so, and the cloud goes on without it until
it has a model again.
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
from spyker.protocol.messages import Action, ClientMessage, EdgeIdle, EdgeModel, PeerMessage, PeerModel
from spyker.protocol.server import Server, Setup, Work
from spyker.vectors import accumulate


@dataclass(frozen=True, slots=True)
class HierFAVGParameters:
    """The parameters of HierFAVG."""

    edge_rounds: int = parameter(2, "κ₂: rounds at the edges between two rounds of the cloud", at_least=1)
    fraction: float = parameter(1.0, "the share of an edge's clients that trains in each round", above=0, at_most=1)


class Cloud(Server):
    """Averages the edges' models. It has no clients of its own."""

    receives: ClassVar[tuple[type[PeerMessage], ...]] = (EdgeModel, EdgeIdle)
    sends: ClassVar[tuple[type[PeerMessage], ...]] = (PeerModel,)

    def __init__(self, id: int, setup: Setup, roster: Mapping[int, int]) -> None:
        super().__init__(id, setup, roster)
        self.round = 0
        self.models: dict[int, EdgeModel] = {}
        self.away: set[int] = set()  # edges without clients

    def start(self) -> Iterator[Action]:
        """The edges begin."""
        return iter(())

    def receive(self, sender: int, message: ClientMessage | PeerMessage) -> None:
        """Keep an edge's model; when all that have clients are there, average them and send the result to all edges."""
        match message:
            case EdgeModel():
                self.away.discard(sender)
                self.models[sender] = message
            case EdgeIdle():
                self.away.add(sender)
        self.check_models()

    def check_models(self) -> None:
        """All that have clients, and are within reach, have told."""
        if self.models and self.complete(self.models.keys() | self.away):
            self.end_round()

    def sighted(self) -> None:
        """Nobody waits for an edge that is out of reach."""
        self.check_models()

    def reformed(self, before: Sequence[int], *, leads: bool) -> None:
        """Go on with other edges."""
        self.models = {j: model for j, model in self.models.items() if j in self.ring}
        self.away &= set(self.ring)
        self.check_models()

    def end_round(self) -> None:
        """Average what there is, and tell everybody."""
        size = sum(model.size for model in self.models.values())
        self.average([(model, model.size / size) for _, model in sorted(self.models.items())])
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
        """What the edges are told."""
        return PeerModel(self.weights.snapshot(), self.age, self.round)

    def work(self, sender: int, message: ClientMessage | PeerMessage) -> Work:
        """The last edge's model costs the aggregation, and so does the word of the last that has none."""
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
        """An edge, or the cloud behind the last edge that there is at first."""
        return cls(id, setup, roster) if id != setup.servers else cls.above(id, setup, roster)

    @classmethod
    def between(cls, sender: int, receiver: int, servers: int) -> tuple[type[PeerMessage], ...]:
        """Edges talk to the cloud alone."""
        return cls.above.receives if receiver == servers else cls.receives if sender == servers else ()

    def __init__(self, id: int, setup: Setup, roster: Mapping[int, int]) -> None:
        super().__init__(id, setup, roster)
        self.waiting = False  # for the cloud
        self._cloud = setup.servers  # the server after the last edge that there is at first

    def begin_round(self) -> None:
        """As in FedAvg; without anybody to begin a round with, the cloud need not wait."""
        super().begin_round()
        if self.idle:
            self.send_server(self._cloud, EdgeIdle())

    def after_round(self) -> None:
        """Every ``edge_rounds`` rounds, ask the cloud and wait."""
        if self.round % self.parameters.edge_rounds or self._cloud in self.suspected:
            self.begin_round()
        else:
            self.waiting = True
            self.ask()

    def ask(self) -> None:
        """Send the cloud what it waits for."""
        size = max(1, sum(self.sizes.values()))  # an edge that all clients have left still has a model
        self.send_server(self._cloud, self.report(size))

    def sighted(self) -> None:
        """An edge whose cloud is out of reach goes on alone."""
        if self.waiting and self._cloud in self.suspected:
            self.waiting = False
            self.begin_round()

    def reformed(self, before: Sequence[int], *, leads: bool) -> None:
        """The cloud may be another one now, which was told nothing."""
        if self.waiting:
            self.ask()
        elif self.idle:
            self.send_server(self._cloud, EdgeIdle())

    def report(self, size: int) -> EdgeModel:
        """What the cloud is told of an edge with so many data points."""
        return EdgeModel(self.weights.snapshot(), self.age, size)

    def receive(self, sender: int, message: ClientMessage | PeerMessage) -> None:
        """The cloud's model replaces the edge's and starts the next round.

        An edge that was not waited for takes the model as well, unless newcomers train an older one already.
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
        """Take over the cloud's model."""
        self.weights.replace(message.weights)
        self.age = message.age
