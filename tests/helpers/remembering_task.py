"""A task whose clients count their trainings in a state of their own, which changes what they answer."""

from typing import Any

import numpy as np

from spyker.tasks.task import Task, TrainingResult
from spyker.vectors import Vector


class Tally:
    """A state that is no plain value; ``ballast`` makes it as large as one likes."""

    def __init__(self, ballast: int) -> None:
        self.count, self.ballast = 0, bytes(ballast)


class Remembering(Task):
    def __init__(self, ballast: int) -> None:
        self.ballast = ballast

    def initial(self) -> Vector:
        return np.zeros(3, np.float32)

    def size(self, client: int) -> int:
        return 1

    def train(self, client: int, weights: Vector, rate: float, step: int, state: Any = None) -> TrainingResult:
        tally = state or Tally(self.ballast)
        assert tally.count == step
        tally.count += 1
        trained = weights + np.float32(0.01 * (client + 1) * tally.count)
        return TrainingResult(trained, examples=10 + client, metrics={"count": tally.count}, state=tally)

    def evaluate(self, weights: Vector) -> float:
        return float(weights.sum())


def make(clients: int, seed: int, training: object, ballast: int = 0) -> Task:
    return Remembering(ballast)
