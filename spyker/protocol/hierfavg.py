"""HierFAVG (Liu, Zhang, Song, Letaief: Client-Edge-Cloud Hierarchical Federated Learning, 2020).

Every region has an edge server that runs FedAvg rounds with its clients. After every ``edge_rounds`` rounds all edges
send their models to the cloud, which averages them by data size and sends the result back. Everybody waits for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from spyker.parameters import parameter
from spyker.protocol.facts import CloudRoundEnded
from spyker.protocol.fedavg import FedAvg
from spyker.protocol.messages import Action, ClientMessage, EdgeModel, PeerMessage, PeerModel
from spyker.protocol.server import Server, Setup, State, Work
from spyker.vectors import accumulate


@dataclass(frozen=True, slots=True)
class HierFAVGParameters:
    """The parameters of HierFAVG."""

    edge_rounds: int = parameter(2, "κ₂: rounds at the edges between two rounds of the cloud", at_least=1)
    fraction: float = parameter(1.0, "the share of an edge's clients that trains in each round", above=0, at_most=1)


class Edge(FedAvg):
    """An edge server: FedAvg below, the cloud above."""

    def __init__(self, id: int, setup: Setup) -> None:
        super().__init__(id, setup)
        self.edge_rounds: int = setup.parameters.edge_rounds
        self.cloud = setup.servers  # the id of the server after the last edge

    def after_round(self) -> None:
        """Every ``edge_rounds`` rounds, ask the cloud and wait."""
        if self.round % self.edge_rounds:
            self.begin_round()
        else:
            size = max(1, sum(self.sizes.values()))  # an edge that all clients have left still has a model
            self.send_server(self.cloud, EdgeModel(self.weights.snapshot(), self.age, size))

    def receive(self, sender: int, message: ClientMessage | PeerMessage) -> None:
        """The cloud's model replaces the edge's and starts the next round."""
        if isinstance(message, PeerModel):
            self.weights.replace(message.weights)
            self.age = message.age
            self.begin_round()
        else:
            super().receive(sender, message)


class Cloud(Server):
    """Averages the edges' models. It has no clients of its own."""

    def __init__(self, id: int, setup: Setup) -> None:
        super().__init__(id, setup)
        self.round = 0
        self.models: dict[int, EdgeModel] = {}

    def start(self) -> Iterator[Action]:
        """The edges begin."""
        return iter(())

    def receive(self, sender: int, message: ClientMessage | PeerMessage) -> None:
        """Keep an edge's model; when all are there, average them and send the result to all edges."""
        if not isinstance(message, EdgeModel):
            return
        self.models[sender] = message
        if len(self.models) < self.n:
            return
        size = sum(model.size for model in self.models.values())
        average = np.zeros_like(message.weights)
        self.age = 0.0
        for _, model in sorted(self.models.items()):
            accumulate(average, model.weights, model.size / size)
            self.age += model.age * model.size / size
        self.models.clear()
        self.weights.replace(average)
        self.round += 1
        self.record(CloudRoundEnded(self.round))
        self.send_all_servers(PeerModel(self.weights.snapshot(), self.age, self.round))

    def work(self, sender: int, message: ClientMessage | PeerMessage) -> Work:
        """The last edge's model costs the aggregation."""
        return Work.AVERAGE if len(self.models.keys() | {sender}) == self.n else Work.NOTHING

    def state(self) -> State:
        """The models that wait for the others."""
        state = super().state()
        state.numbers["round"] = self.round
        state.numbers["models"] = [(j, model.age, model.size) for j, model in self.models.items()]
        state.vectors.update({f"model-{j}": model.weights for j, model in self.models.items()})
        return state

    def restore(self, state: State) -> None:
        """Go on with the models that are there."""
        super().restore(state)
        self.round = state.numbers["round"]
        self.models = {j: EdgeModel(state.vectors[f"model-{j}"], age, size) for j, age, size in state.numbers["models"]}


def hierfavg(id: int, setup: Setup) -> Server:
    """Server number ``id``: an edge, or the cloud behind the last edge."""
    return Edge(id, setup) if id < setup.servers else Cloud(id, setup)
