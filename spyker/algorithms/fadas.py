"""FADAS (Wang, Wang, Lu, Chen: FADAS: Towards Federated Adaptive Asynchronous Optimization, ICML 2024).

FedBuff's buffer, whose mean is taken for a gradient: the server makes steps of AMSGrad with it. A step whose stalest
update is older than a threshold is that much shorter; single updates are not weighed.

The paper's text shortens such a step's rate to min(η, 1/τ_max), which would change nothing with rates like its own; the
code that its authors published divides by τ_max, and so do we.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from spyker.algorithms.fedbuff import FedBuff
from spyker.parameters import parameter
from spyker.protocol.messages import ClientMessage, PeerMessage, Update
from spyker.protocol.server import Setup
from spyker.protocol.weights import Weights
from spyker.vectors import Vector


@dataclass(frozen=True, slots=True)
class FADASParameters:
    """The parameters of FADAS."""

    buffer: int = parameter(10, "M: how many updates the server collects before it moves", at_least=1)
    server_rate: float = parameter(0.03, "η: about how far a weight moves in a step", above=0)
    first_moment: float = parameter(0.9, "β₁: how much of its mean is left after a step", at_least=0, at_most=0.999)
    second_moment: float = parameter(
        0.99, "β₂: how much of its mean square is left after a step", at_least=0, at_most=0.9999
    )
    epsilon: float = parameter(1e-8, "ε: keeps weights in place that hardly ever moved", above=0)
    delay_threshold: float = parameter(1.0, "τ_c: with a staler update than this a step is 1/τ as long", at_least=1)


class FADAS(FedBuff):
    """The only server. Its age counts the steps of its model."""

    Parameters = FADASParameters

    def __init__(self, id: int, setup: Setup, roster: Mapping[int, int]) -> None:
        super().__init__(id, setup, roster)
        self.mean = Weights.zeros(setup.weights)  # m
        self.square = Weights.zeros(setup.weights)  # v
        self.largest = Weights.zeros(setup.weights)  # v̂
        self.stalest = 0.0  # τ_max of the updates in the buffer

    def receive(self, sender: int, message: ClientMessage | PeerMessage) -> None:
        """As in FedBuff, and remember how stale the updates are."""
        if isinstance(message, Update):
            self.stalest = max(self.stalest, self.age - message.age)
        super().receive(sender, message)

    def weigh(self, staleness: float) -> float:
        """All updates count alike."""
        return 1.0

    def move(self, total: Vector) -> None:
        """W ← W + η_t · m / (√v̂ + ε), where m and v are running means of Δ and Δ², and v̂ the largest v so far."""
        p = self.parameters
        step = total / np.float32(self.count)
        self.mean.mix(step, 1 - p.first_moment)
        self.square.mix(step * step, 1 - p.second_moment)
        self.largest.replace(np.maximum(self.largest.snapshot(), self.square.snapshot()))
        scale = np.sqrt(self.largest.snapshot(), dtype=np.float32) + np.float32(p.epsilon)
        late = self.stalest > p.delay_threshold
        rate = p.server_rate / self.stalest if late else p.server_rate
        way = self.mean.snapshot() / scale
        if self._buffers:  # no gradients: their mean is what they are
            way[-self._buffers :] = step[-self._buffers :] / np.float32(rate)
        self.weights.add(way, rate)
        self.stalest = 0.0
