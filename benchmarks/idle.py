"""A task without any training, as large as the MNIST model or as large as one likes: what is left is all the rest."""

from __future__ import annotations

import numpy as np

from spyker.config.scenario import Training
from spyker.tasks.task import Task
from spyker.tasks.torch_task import TorchTask
from spyker.vectors import Vector

PARAMETERS = 21_840


class Idle(Task):
    """Clients answer with what they received."""

    def __init__(self, parameters: int, trivial: bool) -> None:
        self.parameters, self.trivial = parameters, trivial

    mix = TorchTask.mix  # it stands for a model of PyTorch

    def initial(self) -> Vector:
        return np.zeros(self.parameters, np.float32)

    def size(self, client: int) -> int:
        return 1

    def train(self, client: int, weights: Vector, rate: float, step: int) -> Vector:
        return weights

    def evaluate(self, weights: Vector) -> float:
        return 0.0


def make(clients: int, seed: int, training: Training, parameters: int = PARAMETERS, trivial: bool = False) -> Task:
    """``trivial`` tells engines and clients that no worker is needed for it."""
    return Idle(parameters, trivial)
