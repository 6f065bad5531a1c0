"""FADAS (Wang, Wang, Lu, Chen: FADAS: Towards Federated Adaptive Asynchronous Optimization, ICML 2024).

The server collects updates in FedBuff's buffer and uses their mean as the gradient of an AMSGrad step. If the stalest
update exceeds a threshold, the step's learning rate is divided by its staleness. Updates have equal weights.

The paper's text sets such a rate to min(η, 1/τ_max), which has no effect at the paper's rates. The authors' published
code divides by τ_max, and so does this implementation.
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

    buffer: int = parameter(10, "M: updates per step of the server", at_least=1)
    server_rate: float = parameter(0.03, "η: server learning rate", above=0)
    first_moment: float = parameter(0.9, "β₁: decay of the first moment", at_least=0, at_most=0.999)
    second_moment: float = parameter(0.99, "β₂: decay of the second moment", at_least=0, at_most=0.9999)
    epsilon: float = parameter(1e-8, "ε: added to the denominator", above=0)
    delay_threshold: float = parameter(1.0, "τ_c: divide the rate by the maximum staleness τ above this", at_least=1)


class FADAS(FedBuff):
    """The single server. Its age counts steps of the model."""

    Parameters = FADASParameters

    def __init__(self, id: int, setup: Setup, roster: Mapping[int, int]) -> None:
        super().__init__(id, setup, roster)
        self.mean = Weights.zeros(setup.weights)  # m
        self.square = Weights.zeros(setup.weights)  # v
        self.largest = Weights.zeros(setup.weights)  # v̂
        self.stalest = 0.0  # τ_max of the updates in the buffer

    def receive(self, sender: int, message: ClientMessage | PeerMessage) -> None:
        """Process as in FedBuff, and track the maximum staleness."""
        if isinstance(message, Update):
            self.stalest = max(self.stalest, self.age - message.age)
        super().receive(sender, message)

    def weigh(self, staleness: float) -> float:
        """Return 1: updates have equal weights."""
        return 1.0

    def move(self, total: Vector, count: int) -> None:
        """W ← W + η_t · m / (√v̂ + ε), where m and v are running means of Δ and Δ², and v̂ the largest v so far."""
        p = self.parameters
        step = total / np.float32(count)
        self.mean.mix(step, 1 - p.first_moment)
        self.square.mix(step * step, 1 - p.second_moment)
        self.largest.replace(np.maximum(self.largest.snapshot(), self.square.snapshot()))
        scale = np.sqrt(self.largest.snapshot(), dtype=np.float32) + np.float32(p.epsilon)
        late = self.stalest > p.delay_threshold
        rate = p.server_rate / self.stalest if late else p.server_rate
        way = self.mean.snapshot() / scale
        if self._buffers:  # buffers are averaged, not optimised
            way[-self._buffers :] = step[-self._buffers :] / np.float32(rate)
        self.weights.add(way, rate)
        self.stalest = 0.0
