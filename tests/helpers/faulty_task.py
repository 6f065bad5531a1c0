"""A task in which some clients raise an exception, or return weights that are not finite, from some step on."""

import numpy as np

from spyker.tasks.task import Task
from spyker.vectors import Vector


class Faulty(Task):
    def __init__(self, raising: tuple[int, ...], diverging: tuple[int, ...], step: int, trivial: bool) -> None:
        self.raising, self.diverging, self.step, self.trivial = raising, diverging, step, trivial

    def initial(self) -> Vector:
        return np.ones(4, np.float32)

    def size(self, client: int) -> int:
        return client + 1

    def train(self, client: int, weights: Vector, rate: float, step: int) -> Vector:
        if client in self.raising and step >= self.step:
            raise ValueError(f"the data of client {client} is damaged\nand so on")
        if client in self.diverging and step >= self.step:
            return np.full_like(weights, np.nan)
        return weights + np.float32(0.1) * (np.float32(5) - weights)

    def evaluate(self, weights: Vector) -> float:
        return -float(np.abs(weights - 5).max())


def make(
    clients: int,
    seed: int,
    training: object,
    raising: tuple[int, ...] = (),
    diverging: tuple[int, ...] = (),
    step: int = 0,
    trivial: bool = True,
) -> Task:
    return Faulty(tuple(raising), tuple(diverging), step, trivial)
