"""The task ``quadratic``, whose clients number their trainings, so that each can be found in the servers' records."""

from __future__ import annotations

from typing import Any

from spyker.config.scenario import Training
from spyker.tasks.built_in.quadratic import Options, Quadratic
from spyker.tasks.task import TrainingResult
from spyker.vectors import Vector

STEP = "step"


class Counted(Quadratic):
    """Says with every answer the how-manieth training of its client it is."""

    def train(self, client: int, weights: Vector, rate: float, step: int) -> Any:
        """As ever, with the number."""
        return TrainingResult(super().train(client, weights, rate, step), metrics={STEP: float(step)})


def counted(clients: int, seed: int, training: Training) -> Counted:
    """The task for so many clients."""
    return Counted(Options(), clients, seed, training)
