"""An algorithm outside the package: a trimmed mean (Yin, Chen, Ramchandran, Bartlett: Byzantine-Robust Distributed
Learning, 2018).

A single client can move FedAvg's model arbitrarily. Here, in the same rounds, the server sorts the updates per
coordinate, removes the largest and the smallest and takes the mean of the others; with ``trim`` = 0.5, the median.

Run it from this folder; it needs no registration, neither here nor in a deployment:

    spyker compare --algorithms fedavg,trimmed_mean:TrimmedMean --set trimmedmean.trim=0.2 --task digits --duration 20
    spyker up --algorithm trimmed_mean:TrimmedMean --clients 8 --duration 10
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from spyker.algorithm import ClientMessage, FedAvg, PeerMessage, Setup, Update, Vector, parameter


@dataclass(frozen=True, slots=True)
class TrimmedMeanParameters:
    """Keys of ``[trimmedmean]`` in a scenario file."""

    trim: float = parameter(0.1, "β: the share of the updates removed at either end", at_least=0, at_most=0.5)
    fraction: float = parameter(1.0, "the share of the clients that train in each round", above=0, at_most=1)


class TrimmedMean(FedAvg):
    """The only server. Its attributes, and so the updates of a round, are part of a checkpoint."""

    Parameters = TrimmedMeanParameters

    def __init__(self, id: int, setup: Setup, roster: Mapping[int, int]) -> None:
        super().__init__(id, setup, roster)
        self.answers: list[Vector] = []

    def begin_round(self) -> None:
        """Sample the clients as FedAvg does, but without weights by claimed data sizes."""
        super().begin_round()
        self.shares = dict.fromkeys(self.shares, 1 / max(1, len(self.shares)))

    def receive(self, sender: int, message: ClientMessage | PeerMessage) -> None:
        """Keep an update of this round. FedAvg starts and ends rounds."""
        if isinstance(message, Update) and sender in self.awaited and message.version == self.version:
            self.answers.append(message.weights)
        super().receive(sender, message)

    def aggregate(self) -> None:
        """W ← the mean of the remaining values, per coordinate."""
        count = len(self.answers)
        cut = min(int(self.parameters.trim * count), (count - 1) // 2)  # at least one or two remain
        kept = np.sort(np.stack(self.answers), axis=0)[cut : count - cut]
        self.weights.replace(kept.mean(axis=0, dtype=np.float32))
        self.answers.clear()
