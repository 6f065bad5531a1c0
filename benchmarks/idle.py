"""A task without training and with a model of any size, to measure the overhead of everything else."""

from __future__ import annotations

import numpy as np

from spyker.config.scenario import Training
from spyker.tasks.task import Task
from spyker.tasks.torch_task import TorchTask
from spyker.vectors import Vector

PARAMETERS = 21_840


class Idle(Task):
    """A task whose clients return the model that they received."""

    def __init__(self, parameters: int, trivial: bool) -> None:
        self.parameters, self.trivial = parameters, trivial

    mix = TorchTask.mix  # as for a PyTorch model

    def initial(self) -> Vector:
        return np.zeros(self.parameters, np.float32)

    def size(self, client: int) -> int:
        return 1

    def train(self, client: int, weights: Vector, rate: float, step: int) -> Vector:
        return weights

    def evaluate(self, weights: Vector) -> float:
        return 0.0


def make(clients: int, seed: int, training: Training, parameters: int = PARAMETERS, trivial: bool = False) -> Task:
    """Make the task; ``trivial`` means that engines and clients use no worker for it."""
    return Idle(parameters, trivial)
