"""What a task must offer. Servers and messages do not exist here: training is a function from weights to weights."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spyker.vectors import Vector, mix


@dataclass(frozen=True, slots=True)
class Metric:
    """What an evaluation measures, and whether more of it is better."""

    name: str
    higher_is_better: bool = True
    targets: tuple[float, ...] = ()
    """Scores worth reporting when they are reached, where a scenario names none."""


ACCURACY = Metric("accuracy", targets=(0.9, 0.95))


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    """An evaluation of more than one metric."""

    score: float
    also: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class TrainingResult:
    """What a training may return instead of bare weights."""

    weights: Vector
    examples: int | None = None
    """How many examples it used, if not as many as :meth:`Task.size` says."""
    metrics: Mapping[str, float] | None = None
    """What the client measured, by name."""
    state: object | None = None
    """What the client will find in its next training: anything that can be pickled."""


class Task(ABC):
    """Something that a number of clients can learn together.

    ``train`` and ``evaluate`` are pure functions of their arguments, so that they may run anywhere, in any order.

    A task whose clients remember something from one training to the next declares one more parameter, ``train(self,
    client, weights, rate, step, state=None)``: it is given a copy of the ``state`` that the client's last training
    returned in :class:`TrainingResult`, whoever computed that. One that declares ``age`` is told the age of the model
    that it trains: how many updates are in it.
    """

    metric = Metric("score")
    """What :meth:`evaluate` measures. A task that does not say has a score, of which more is better, and no targets."""
    also: Sequence[Metric] = ()
    """What it measures besides."""
    trivial = False
    """Whether training costs so little that sending it to a worker process would cost more."""
    by_value = False
    """Whether worker processes are given a copy of the task, pickled, instead of making it again."""

    rate: float | None = None
    """The initial learning rate of a task that brings its own, used where the scenario sets no ``training.rate``."""
    notes: Sequence[str] = ()
    """What a user should know about the task before a run."""
    evaluates_states = False
    """Whether :meth:`evaluate` takes a second argument, the states that clients' last trainings returned, by client. An
    emulation passes them; in a deployment they stay with the clients, and the argument is left out."""

    buffers: int = 0
    """How many numbers at the end of the weights are statistics of the data, such as BatchNorm's running means and
    variances: they are trained by no gradient, and servers average them and do nothing else."""

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
    def train(self, client: int, weights: Vector, rate: float, step: int) -> Vector | TrainingResult:
        """Train a model on the data of a client; ``step`` counts its trainings and seeds this one."""

    @abstractmethod
    def evaluate(self, weights: Vector) -> float | Mapping[str, float]:
        """The metric of a model on data that no client trains on; with ``also``, all of them by name."""

    def train_only(self) -> None:  # noqa: B027 - a task that keeps nothing else has nothing to do
        """From now on this process calls only ``train`` and ``evaluate``, and copies what they return before it calls
        again: what else is kept may go.
        """

    def explain(self, client: int, weights: Vector, rate: float, step: int, state: Any = None) -> str:
        """Why this training led to numbers that are not finite, and what to do about it, if the task can tell."""
        return ""
