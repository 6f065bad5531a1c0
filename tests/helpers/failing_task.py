"""A task that cannot train for client 1, once it has done so a few times."""

import numpy as np

from spyker.tasks.task import Task
from spyker.vectors import Vector

GOOD_STEPS = 2


class Failing(Task):
    def __init__(self, trivial: bool) -> None:
        self.trivial = trivial

    def initial(self) -> Vector:
        return np.zeros(4, np.float32)

    def size(self, client: int) -> int:
        return 1

    def train(self, client: int, weights: Vector, rate: float, step: int) -> Vector:
        if client == 1 and step == GOOD_STEPS:
            raise ValueError("the data of this client is damaged")
        return weights + np.float32(1)

    def evaluate(self, weights: Vector) -> float:
        return 0.0


def make(clients: int, seed: int, training: object, trivial: bool) -> Task:
    return Failing(trivial)
