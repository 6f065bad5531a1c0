"""What a task must offer. Servers and messages do not exist here: training is a function from weights to weights."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from spyker.vectors import Vector, mix


@dataclass(frozen=True, slots=True)
class Metric:
    """What an evaluation measures, and whether more of it is better."""

    name: str
    higher_is_better: bool = True


class Task(ABC):
    """Something that a number of clients can learn together.

    ``train`` and ``evaluate`` are pure functions of their arguments, so that they may run anywhere, in any order.
    """

    metric = Metric("accuracy")
    trivial = False
    """Whether training costs so little that sending it to a worker process would cost more."""

    def mix(self, target: Vector, source: Vector, weight: float, out: Vector) -> None:
        """How servers mix models of this task: as :func:`spyker.vectors.mix`, unless the task knows better."""
        mix(target, source, weight, out)

    @abstractmethod
    def initial(self) -> Vector:
        """W⁰, the weights that everybody starts from."""

    @abstractmethod
    def size(self, client: int) -> int:
        """d_k, the number of data points of a client."""

    @abstractmethod
    def train(self, client: int, weights: Vector, rate: float, step: int) -> Vector:
        """Train a model on the data of a client; ``step`` counts its trainings and seeds this one."""

    @abstractmethod
    def evaluate(self, weights: Vector) -> float:
        """The metric of a model on data that no client trains on."""
