"""Engines, which run training and evaluation.

A job is *submitted* when its inputs are known and *awaited* when its result is due. The result depends only on the job,
not on the worker or the time of the computation.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TypeAlias, cast

from spyker.errors import ClientTrainingError
from spyker.tasks.checked_task import CheckedTask
from spyker.tasks.task import ClientEvaluation, EvaluationResult, Task, TrainingResult
from spyker.vectors import Vector

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3  # as in <malloc.h>
M_MMAP_MAX, DEFAULT_MAPS = -4, 65536
M_ARENA_MAX, ARENAS = -8, 1
KEPT_BYTES = 32 << 20  # the maximum of M_MMAP_THRESHOLD


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

    def finish(self, answer: Vector | TrainingResult) -> Vector:
        """Store the result."""
        if isinstance(answer, TrainingResult):
            self.result, self.examples, self.metrics = answer.weights, answer.examples, answer.metrics
            self.new_state = cast("bytes | None", answer.state)  # pickled by CheckedTask
            self.evaluation = answer.evaluation
        else:
            self.result = answer
        return self.result


@dataclass(slots=True, eq=False)
class EvaluateJob:
    """Evaluate ``weights``."""

    weights: Vector
    states: Mapping[int, bytes] | None = None
    """Clients' states, for a task that evaluates with them."""
    result: float | None = None
    also: Mapping[str, float] | None = None
    """Further metrics, by name."""

    def finish(self, answer: float | EvaluationResult) -> None:
        """Store the result."""
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
    def trained(self, job: TrainJob) -> Vector:
        """Return the weights of a submitted training; its state and metrics are stored in the job.

        Raises:
            ClientTrainingError: this training failed; other jobs are not affected.

        """

    @abstractmethod
    def score(self, job: EvaluateJob) -> float:
        """Return the result of a submitted evaluation."""

    @abstractmethod
    def size(self, job: SizeJob) -> int:
        """Return the result of a submitted count."""

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
            job.finish(self.task.evaluate(job.weights, job.states))
        elif isinstance(job, SizeJob):
            job.result = self.task.size(job.client)

    def trained(self, job: TrainJob) -> Vector:
        """Train now."""
        return job.finish(
            self.task.train(job.client, job.weights, job.rate, job.step, job.state, job.age, evaluate=job.evaluate)
        )

    def size(self, job: SizeJob) -> int:
        """Return the number counted at submission."""
        assert job.result is not None
        return job.result

    def score(self, job: EvaluateJob) -> float:
        """Return the score computed at submission."""
        assert job.result is not None
        return job.result


def single_threaded() -> None:
    """Limit torch to one thread, which is faster than oversubscription and keeps the order of sums."""
    if "torch" in sys.modules:  # do not import it for a task without torch
        sys.modules["torch"].set_num_threads(1)


def keep_memory() -> None:
    """Make the C library keep memory that training frees, instead of returning it to the kernel after every batch.

    Otherwise page faults take up to a sixth of the time of a small model's training.
    """
    with contextlib.suppress(OSError, AttributeError):  # only glibc has these settings, and needs them
        mallopt = ctypes.CDLL("libc.so.6").mallopt
        for setting in (M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD):
            mallopt(setting, KEPT_BYTES)


def reuse_memory(*, reuse: bool = True) -> None:
    """Make the C library also reuse large blocks, such as vectors of large models.

    Without ``reuse``, it returns the memory that it has kept.
    """
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL("libc.so.6")
        library.malloc_trim(0)
        library.mallopt(M_MMAP_MAX, 0 if reuse else DEFAULT_MAPS)
        library.mallopt(M_TRIM_THRESHOLD, -1 if reuse else KEPT_BYTES)


def allow_processes() -> None:
    """Allow a task to start processes in a worker, as DataLoaders do; daemonic processes may not."""
    multiprocessing.current_process().daemon = False
    multiprocessing.set_start_method(None, force=True)  # back to the platform's default


def share_memory() -> None:
    """Make all threads of this process share one memory arena, so that freed memory is reused across threads."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").mallopt(M_ARENA_MAX, ARENAS)
