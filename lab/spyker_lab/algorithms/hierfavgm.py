"""HierFAVGM: HierFAVG whose edges have momentum, as FedAvgM's server has.

The cloud averages the edges' momenta as well as their models, so that all edges continue from the same state. Yang, Fu,
Bao, Yuan and Zomaya (Hierarchical Federated Learning with Momentum Acceleration in Multi-Tier Networks, 2022) do the
same and also have momentum in the clients; here clients have none, because all algorithms share one local training. The
traffic between edges and cloud is twice that of HierFAVG.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from spyker.algorithms.hierfavg import Cloud, Edge
from spyker.parameters import parameter
from spyker.protocol.messages import EdgeIdle, EdgeModel, PeerModel
from spyker.protocol.server import Setup
from spyker.protocol.weights import Weights
from spyker.vectors import Vector
from spyker_lab.algorithms.fedavgm import FedAvgM


@dataclass(frozen=True, slots=True)
class HierFAVGMParameters:
    """The parameters of HierFAVGM."""

    edge_rounds: int = parameter(4, "κ₂: edge rounds per cloud round", at_least=1)
    server_rate: float = parameter(1.0, "c: learning rate of an edge", above=0)
    momentum: float = parameter(0.9, "μ: momentum decay per round", at_least=0, at_most=0.999)
    fraction: float = parameter(1.0, "fraction of an edge's clients that train in each round", above=0, at_most=1)


@dataclass(frozen=True, slots=True, eq=False)
class EdgeMomentum(EdgeModel):
    """Edge to cloud: model and momentum."""

    momentum: Vector


@dataclass(frozen=True, slots=True, eq=False)
class CloudMomentum(PeerModel):
    """Cloud to edge: averaged model and momentum."""

    momentum: Vector


class MomentumCloud(Cloud):
    """Averages the edges' models and their momenta."""

    receives, sends = (EdgeMomentum, EdgeIdle), (CloudMomentum,)

    def __init__(self, id: int, setup: Setup, roster: Mapping[int, int]) -> None:
        super().__init__(id, setup, roster)
        self.momentum = Weights.zeros(setup.weights)

    def average(self, models: Sequence[tuple[EdgeModel, float]]) -> None:
        """W ← Σ D_j/D · W_j; m ← Σ D_j/D · m_j."""
        super().average(models)
        self.momentum = Weights.zeros(self.weights.snapshot())
        for model, share in models:
            assert isinstance(model, EdgeMomentum)
            self.momentum.add(model.momentum, share)

    def result(self) -> CloudMomentum:
        """Return the message with the result for the edges."""
        return CloudMomentum(self.weights.snapshot(), self.age, self.round, self.momentum.snapshot())


class HierFAVGM(FedAvgM, Edge):
    """An edge server: FedAvgM below, the cloud above."""

    Parameters = HierFAVGMParameters
    receives, sends = (CloudMomentum,), (EdgeMomentum, EdgeIdle)
    above = MomentumCloud

    def report(self, size: int, clients: int) -> EdgeMomentum:
        """Return the edge's model and momentum."""
        return EdgeMomentum(self.weights.snapshot(), self.age, size, self.momentum.snapshot(), clients=clients)

    def adopt(self, message: PeerModel) -> None:
        """Replace model and momentum by the cloud's."""
        super().adopt(message)
        assert isinstance(message, CloudMomentum)
        self.momentum.replace(message.momentum)
