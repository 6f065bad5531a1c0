"""FedAvgM: FedAvg with momentum at the server (Hsu, Qi, Brown: Measuring the Effects of Non-Identical Data Distribution
for Federated Visual Classification, 2019).

How far a round's average is from the model it began with is a step. The server remembers its steps, each a little less
with every round, and moves along that memory as well.

The paper writes W ← W + m. This is Nesterov's form of it, which looks one step ahead, and has a rate besides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from spyker.algorithms.fedavg import FedAvg
from spyker.parameters import parameter
from spyker.protocol.buffers import buffers_once, without_buffers
from spyker.protocol.server import Setup
from spyker.protocol.weights import Weights


@dataclass(frozen=True, slots=True)
class FedAvgMParameters:
    """The parameters of FedAvgM."""

    server_rate: float = parameter(1.0, "c: server learning rate", above=0)
    momentum: float = parameter(0.9, "μ: momentum decay per round", at_least=0, at_most=0.999)
    fraction: float = parameter(1.0, "C: fraction of the clients that train in each round", above=0, at_most=1)


class FedAvgM(FedAvg):
    """The single server; in HierFAVGM, the base class of edges."""

    Parameters: ClassVar[type[Any]] = FedAvgMParameters

    def __init__(self, id: int, setup: Setup, roster: Mapping[int, int]) -> None:
        super().__init__(id, setup, roster)
        self.momentum = Weights.zeros(setup.weights)  # m
        self._buffers = setup.buffers

    def aggregate(self) -> None:
        """W ← W + c·(Δ + μ·m), where Δ = Σ d_k/d · W_k − W and m ← μ·m + Δ."""
        c, mu = self.parameters.server_rate, self.parameters.momentum
        step = self.average.snapshot() - self.weights.snapshot()
        self.momentum.scale(mu)
        self.momentum.add(without_buffers(step, self._buffers), 1.0)
        self.weights.add(buffers_once(step, self._buffers, c), c)
        self.weights.add(self.momentum.snapshot(), c * mu)
