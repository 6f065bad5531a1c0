"""HierFAVGM: HierFAVG whose edges have momentum, as FedAvgM's server has.

The cloud averages the edges' momenta as it averages their models, so that after each of its rounds all edges move on
from one place in one direction. Yang, Fu, Bao, Yuan and Zomaya (Hierarchical Federated Learning with Momentum
Acceleration in Multi-Tier Networks, 2022) do the same, with momentum in the clients besides; ours have none, because
all algorithms share one local training. What crosses the links between edges and cloud is twice as much as in HierFAVG.
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

    edge_rounds: int = parameter(4, "κ₂: rounds at the edges between two rounds of the cloud", at_least=1)
    server_rate: float = parameter(1.0, "c: how far an edge moves along a round's step and its momentum", above=0)
    momentum: float = parameter(0.9, "μ: how much of its momentum is left after a round", at_least=0, at_most=0.999)
    fraction: float = parameter(1.0, "the share of an edge's clients that trains in each round", above=0, at_most=1)


@dataclass(frozen=True, slots=True, eq=False)
class EdgeMomentum(EdgeModel):
    """Edge to cloud: the edge's momentum as well."""

    momentum: Vector


@dataclass(frozen=True, slots=True, eq=False)
class CloudMomentum(PeerModel):
    """Cloud to edge: the average of the momenta as well."""

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
        """What the edges are told."""
        return CloudMomentum(self.weights.snapshot(), self.age, self.round, self.momentum.snapshot())


class HierFAVGM(FedAvgM, Edge):
    """An edge server: FedAvgM below, the cloud above."""

    Parameters = HierFAVGMParameters
    receives, sends = (CloudMomentum,), (EdgeMomentum, EdgeIdle)
    above = MomentumCloud

    def report(self, size: int) -> EdgeMomentum:
        """What the cloud is told."""
        return EdgeMomentum(self.weights.snapshot(), self.age, size, self.momentum.snapshot())

    def adopt(self, message: PeerModel) -> None:
        """Take over the cloud's model and its momentum."""
        super().adopt(message)
        assert isinstance(message, CloudMomentum)
        self.momentum.replace(message.momentum)
