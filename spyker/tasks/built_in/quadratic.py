"""``quadratic``: a task without data, for calculation by hand and for very many clients.

Client k minimises ``½‖W − c_k‖²``. T epochs of gradient descent with rate η give
``W_k = c_k + (1 − η)^T · (W − c_k)``. The metric is the share of the distance from ``W⁰ = 0`` to the mean of all optima
that has been covered.
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
        None, "one row per client; unset: drawn from a normal distribution around 1"
    )
    dimension: int = parameter(8, "P: the number of parameters, when optima are drawn", at_least=1)


class Quadratic(Task):
    """The task ``quadratic``."""

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
            problem = f"{value} is not allowed: the task quadratic uses plain SGD"
            raise UsageError(f"training.{key}", problem, "Remove the setting")
        self.training = training
        self.mean_optimum = self.optima.mean(axis=0, dtype=np.float64)
        self.distance = float(np.linalg.norm(self.mean_optimum))

    def initial(self) -> Vector:
        """Return W⁰ = 0."""
        return np.zeros(self.optima.shape[1], np.float32)

    def size(self, client: int) -> int:
        """Return 1: all clients have the same weight."""
        return 1

    def train(self, client: int, weights: Vector, rate: float, step: int) -> Vector:
        """Return the closed form of all epochs of gradient descent."""
        optimum, mu = self.optima[client], self.training.proximal
        if mu:  # the proximal term moves the optimum towards the received model and makes the parabola steeper
            optimum = (optimum + mu * weights) / (1 + mu)
        remaining = (1 - rate * (1 + mu)) ** self.training.epochs
        trained: Vector = optimum + remaining * (weights - optimum)
        return trained

    def evaluate(self, weights: Vector) -> float:
        """Return the share of the distance to the mean of all optima that has been covered, 0 to 1."""
        remaining = float(np.linalg.norm(weights - self.mean_optimum))
        return max(0.0, 1 - remaining / self.distance) if self.distance else float(remaining == 0)


def check_optima(optima: tuple[tuple[float, ...], ...], clients: int) -> tuple[tuple[float, ...], ...]:
    """Return the optima; raise a ``UsageError`` unless there is one row per client, all of the same length."""
    if len(optima) != clients:
        raise UsageError("task.optima", f"has {len(optima)} rows for {clients} clients", "Give one row per client")
    for i, row in enumerate(optima):
        if not row or len(row) != len(optima[0]):
            problem = f"has {len(row)} numbers, the first row {len(optima[0])}"
            raise UsageError(f"task.optima[{i}]", problem, "Give rows of equal length")
    return optima


def make(options: Any, clients: int, seed: int, training: Training) -> Task:
    """Create the task."""
    return Quadratic(options, clients, seed, training)
