"""Engines, which run training and evaluation.

A job is *submitted* when its inputs are known and *awaited* when its result is due. The result depends only on the job,
not on the worker or the time of the computation.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TypeAlias, cast

import numpy as np

from spyker.engines.process_settings import single_threaded
from spyker.errors import ClientTrainingError
from spyker.tasks.checked_task import CheckedTask
from spyker.tasks.task import ClientEvaluation, EvaluationResult, Task, TrainingResult
from spyker.vectors import Vector, average


@dataclass(slots=True, eq=False)
class TrainJob:
    """Train ``weights`` on the data of ``client``."""

    client: int
    weights: Vector
    rate: float
    step: int
    state: bytes | None = None
    """State from the client's last training, if the task has client state."""
    age: float = 0.0
    """Age of the model."""
    evaluate: bool = False
    """Whether the client evaluates the received model before it trains."""
    result: Vector | None = None
    examples: int | None = None
    metrics: Mapping[str, float] | None = None
    evaluation: ClientEvaluation | None = None
    new_state: bytes | None = None
    """The client's state after this training."""
    error: ClientTrainingError | None = None
    """Error of a failed training, raised when the result is awaited, so at the same time with any engine."""

    @property
    def reported_evaluation(self) -> dict[str, float] | None:
        """The client's evaluation as an update carries it."""
        found = self.evaluation
        return None if found is None else {**found.scores, "examples": float(found.examples)}

    def finish(self, answer: Vector | TrainingResult) -> None:
        """Store the result."""
        if isinstance(answer, TrainingResult):
            self.result, self.examples, self.metrics = answer.weights, answer.examples, answer.metrics
            self.new_state = cast("bytes | None", answer.state)  # pickled by CheckedTask
            self.evaluation = answer.evaluation
        else:
            self.result = answer


@dataclass(slots=True, eq=False)
class EvaluateJob:
    """Evaluate ``weights``, or the mean of several models."""

    weights: Vector | Sequence[Vector]
    states: Mapping[int, bytes] | None = None
    """Clients' states, for a task that evaluates with them."""
    result: float | None = None
    also: Mapping[str, float] | None = None
    """Further metrics, by name."""

    def vector(self) -> Vector:
        """Return the weights, or the mean."""
        return self.weights if isinstance(self.weights, np.ndarray) else average(self.weights)

    def move_to(self, memory: Vector) -> None:
        """Write the weights to ``memory``, and evaluate them from there. The given ones are no longer needed."""
        if isinstance(self.weights, np.ndarray):
            np.copyto(memory, self.weights)
        else:
            average(self.weights, memory)
        self.weights = memory

    def finish(self, answer: float | EvaluationResult) -> None:
        """Store the result."""
        self.weights = ()
        if isinstance(answer, EvaluationResult):
            self.result, self.also = answer.score, answer.also
        else:
            self.result = answer


@dataclass(slots=True, eq=False)
class SizeJob:
    """Count the data points of ``client``."""

    client: int
    result: int | None = None


Job: TypeAlias = TrainJob | EvaluateJob | SizeJob


class Engine(ABC):
    """Base class of engines, which run jobs. A context manager that stops the workers at the end."""

    @abstractmethod
    def submit(self, job: Job, due: float) -> None:
        """Submit a job; ``due`` is the time at which its result will be awaited, on the caller's clock."""

    @abstractmethod
    def finish(self, job: Job) -> None:
        """Finish a submitted job: set its result, or the error of a training."""

    def trained(self, job: TrainJob) -> Vector:
        """Return the weights of a submitted training; its state and metrics are stored in the job.

        Raises:
            ClientTrainingError: this training failed; other jobs are not affected.

        """
        self.finish(job)
        if job.error is not None:
            raise job.error
        assert job.result is not None
        return job.result

    def score(self, job: EvaluateJob) -> float:
        """Return the result of a submitted evaluation."""
        self.finish(job)
        assert job.result is not None
        return job.result

    def size(self, job: SizeJob) -> int:
        """Return the result of a submitted count."""
        self.finish(job)
        assert job.result is not None
        return job.result

    def memory(self) -> Vector | None:
        """Return memory from which a model can be evaluated without another copy, if the engine has any."""
        return None

    def sizes(self, clients: int) -> list[int]:
        """Return the numbers of data points of all clients, counted where the clients train."""
        jobs = [SizeJob(k) for k in range(clients)]
        for job in jobs:
            self.submit(job, 0.0)
        return [self.size(job) for job in jobs]

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def cancel(self) -> None:  # noqa: B027 - nothing to do for an engine that does nothing ahead
        """Drop submitted jobs that have not started."""

    def close(self) -> None:  # noqa: B027
        """Release all resources."""


class InProcessEngine(Engine):
    """An engine that runs jobs in this process, one after the other."""

    def __init__(self, task: Task) -> None:
        single_threaded()
        self.task = CheckedTask(task)

    def submit(self, job: Job, due: float) -> None:
        """Evaluate immediately; train when the result is due."""
        if isinstance(job, EvaluateJob):
            job.finish(self.task.evaluate(job.vector(), job.states))
        elif isinstance(job, SizeJob):
            job.result = self.task.size(job.client)

    def finish(self, job: Job) -> None:
        """Train now."""
        if isinstance(job, TrainJob):
            job.finish(
                self.task.train(job.client, job.weights, job.rate, job.step, job.state, job.age, evaluate=job.evaluate)
            )
