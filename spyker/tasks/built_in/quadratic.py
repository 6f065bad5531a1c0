"""``quadratic``: a task without data, for hand calculation and for very many clients.

Client k wants the weights to be ``c_k``; T epochs of gradient descent with rate η on ``½‖W − c_k‖²`` leave
``W_k = c_k + (1 − η)^T · (W − c_k)``. Its score says which part of the way from ``W⁰ = 0`` to the mean of all optima
has been covered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from spyker.config.scenario import Training
from spyker.config.sections import show
from spyker.errors import UsageError
from spyker.parameters import parameter
from spyker.tasks.plain_sgd import beyond_sgd
from spyker.tasks.task import Metric, Task
from spyker.vectors import Vector


@dataclass(frozen=True, slots=True)
class Options:
    """The options of ``quadratic``."""

    optima: tuple[tuple[float, ...], ...] | None = parameter(
        None, "one row per client; drawn from a normal distribution around 1 when absent"
    )
    dimension: int = parameter(8, "P: the number of parameters, when optima are drawn", at_least=1)


class Quadratic(Task):
    """See the module."""

    metric = Metric("covered", targets=(0.9, 0.95))
    trivial = True

    def __init__(self, options: Options, clients: int, seed: int, training: Training) -> None:
        if options.optima is None:
            random = np.random.default_rng((seed, 0x0971))
            self.optima = random.normal(1.0, 1.0, (clients, options.dimension)).astype(np.float32)
        else:
            self.optima = np.asarray(check_optima(options.optima, clients), np.float32)
        if key := beyond_sgd(training):
            value = show(getattr(training, key.replace("-", "_")))
            raise UsageError(f"training.{key}", f"{value} is not allowed", "The task quadratic knows plain sgd only")
        self.training = training
        self.goal = self.optima.mean(axis=0, dtype=np.float64)
        self.way = float(np.linalg.norm(self.goal))

    def initial(self) -> Vector:
        """W⁰ = 0."""
        return np.zeros(self.optima.shape[1], np.float32)

    def size(self, client: int) -> int:
        """Every client counts the same."""
        return 1

    def train(self, client: int, weights: Vector, rate: float, step: int) -> Vector:
        """All epochs at once, by the closed form of gradient descent on a parabola."""
        optimum, mu = self.optima[client], self.training.proximal
        if mu:  # the received model pulls, too: another optimum, and a steeper parabola
            optimum = (optimum + mu * weights) / (1 + mu)
        left = (1 - rate * (1 + mu)) ** self.training.epochs
        trained: Vector = optimum + left * (weights - optimum)
        return trained

    def evaluate(self, weights: Vector) -> float:
        """The part of the way from the start to the mean of all optima that has been covered, 0 to 1."""
        left = float(np.linalg.norm(weights - self.goal))
        return max(0.0, 1 - left / self.way) if self.way else float(left == 0)


def check_optima(optima: tuple[tuple[float, ...], ...], clients: int) -> tuple[tuple[float, ...], ...]:
    """One row per client, all of the same length."""
    if len(optima) != clients:
        raise UsageError("task.optima", f"has {len(optima)} rows for {clients} clients", "Give one row per client")
    for i, row in enumerate(optima):
        if not row or len(row) != len(optima[0]):
            raise UsageError(
                f"task.optima[{i}]", f"has {len(row)} numbers, the first row {len(optima[0])}", "Make all rows alike"
            )
    return optima


def make(options: Any, clients: int, seed: int, training: Training) -> Task:
    """The task for so many clients."""
    return Quadratic(options, clients, seed, training)
