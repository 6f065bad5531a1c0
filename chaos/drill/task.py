"""The task ``quadratic`` with numbered trainings, so that each can be found in the servers' records."""

from __future__ import annotations

from typing import Any

from spyker.config.scenario import Training
from spyker.tasks.built_in.quadratic import Options, Quadratic
from spyker.tasks.task import TrainingResult
from spyker.vectors import Vector

STEP = "step"


class Counted(Quadratic):
    """A ``quadratic`` task whose updates report the number of the client's training."""

    def train(self, client: int, weights: Vector, rate: float, step: int) -> Any:
        """Train, and report the number of the training."""
        return TrainingResult(super().train(client, weights, rate, step), metrics={STEP: float(step)})


def counted(clients: int, seed: int, training: Training) -> Counted:
    """Create the task."""
    return Counted(Options(), clients, seed, training)
