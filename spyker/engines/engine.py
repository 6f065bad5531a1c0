"""Where training and evaluation run.

Work is *submitted* as soon as its inputs are known and *awaited* only when its result is due. The result of a job is a
function of the job alone, so it does not matter who computes it, nor when.
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
from spyker.tasks.task import EvaluationResult, Task, TrainingResult
from spyker.vectors import Vector

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3  # as in <malloc.h>
M_MMAP_MAX, USUAL_MAPS = -4, 65536
M_ARENA_MAX, ARENAS = -8, 1
KEPT_BYTES = 32 << 20  # the most that M_MMAP_THRESHOLD takes


@dataclass(slots=True, eq=False)
class TrainJob:
    """Train ``weights`` on the data of ``client``."""

    client: int
    weights: Vector
    rate: float
    step: int
    state: bytes | None = None
    """What the client's last training left behind, if the task keeps anything."""
    age: float = 0.0
    """Of the model that is trained."""
    result: Vector | None = None
    examples: int | None = None
    metrics: Mapping[str, float] | None = None
    left: bytes | None = None
    """The client's state after this training."""
    error: ClientTrainingError | None = None
    """Why it failed, if it did: raised by whoever asks for the result, so at the same time with any engine."""

    def finish(self, answer: Vector | TrainingResult) -> Vector:
        """Note what came of it."""
        if isinstance(answer, TrainingResult):
            self.result, self.examples, self.metrics = answer.weights, answer.examples, answer.metrics
            self.left = cast("bytes | None", answer.state)  # as the guard left it
        else:
            self.result = answer
        return self.result


@dataclass(slots=True, eq=False)
class EvaluateJob:
    """Judge ``weights``."""

    weights: Vector
    states: Mapping[int, bytes] | None = None
    """What clients' last trainings left behind, by client, for a task that evaluates with it."""
    result: float | None = None
    also: Mapping[str, float] | None = None
    """What else was measured, by name."""

    def finish(self, answer: float | EvaluationResult) -> None:
        """Note what came of it."""
        if isinstance(answer, EvaluationResult):
            self.result, self.also = answer.score, answer.also
        else:
            self.result = answer


Job: TypeAlias = TrainJob | EvaluateJob


class Engine(ABC):
    """Runs jobs. Use it as a context manager, so that what it started ends."""

    @abstractmethod
    def submit(self, job: Job, due: float) -> None:
        """Take a job on; ``due`` says when its result will be asked for, on the caller's clock."""

    @abstractmethod
    def trained(self, job: TrainJob) -> Vector:
        """The weights that a training led to, which was submitted; what else it left is in the job then.

        Raises :class:`~spyker.errors.ClientTrainingError` if this training failed; other jobs are not
        concerned.
        """

    @abstractmethod
    def score(self, job: EvaluateJob) -> float:
        """The result of an evaluation that was submitted."""

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def cancel(self) -> None:  # noqa: B027 - nothing to do for an engine that does nothing ahead
        """Nobody will ask for what was submitted and not begun."""

    def close(self) -> None:  # noqa: B027
        """Let go of everything."""


class InProcessEngine(Engine):
    """Runs every job in this process, one after the other."""

    def __init__(self, task: Task) -> None:
        single_threaded()
        self.task = CheckedTask(task)

    def submit(self, job: Job, due: float) -> None:
        """Evaluate at once, since somebody watches; train when it is due."""
        if isinstance(job, EvaluateJob):
            job.finish(self.task.evaluate(job.weights, job.states))

    def trained(self, job: TrainJob) -> Vector:
        """Train now."""
        return job.finish(self.task.train(job.client, job.weights, job.rate, job.step, job.state, job.age))

    def score(self, job: EvaluateJob) -> float:
        """What was computed when the job was submitted."""
        assert job.result is not None
        return job.result


def single_threaded() -> None:
    """Compute with one torch thread: faster than several that wait for each other, and sums keep one order."""
    if "torch" in sys.modules:  # a task without torch needs none
        sys.modules["torch"].set_num_threads(1)


def keep_memory() -> None:
    """Let the C library keep the memory that training frees, instead of returning it to the kernel after every batch.

    Getting it back costs a page fault per 4 kB: up to a sixth of the time of a small model's training.
    """
    with contextlib.suppress(OSError, AttributeError):  # only glibc has these settings, and needs them
        mallopt = ctypes.CDLL("libc.so.6").mallopt
        for setting in (M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD):
            mallopt(setting, KEPT_BYTES)


def reuse_memory(*, reuse: bool = True) -> None:
    """Let the C library keep, and use again, also what is larger: vectors of large models, which it would otherwise get
    from the kernel each time, and so page by page. Without ``reuse``, it gives back what it has kept.
    """
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL("libc.so.6")
        library.malloc_trim(0)
        library.mallopt(M_MMAP_MAX, 0 if reuse else USUAL_MAPS)
        library.mallopt(M_TRIM_THRESHOLD, -1 if reuse else KEPT_BYTES)


def allow_processes() -> None:
    """Let a task start processes in a worker, as DataLoaders do: daemons may not, and by spawning they start slowly."""
    multiprocessing.current_process().daemon = False
    multiprocessing.set_start_method(None, force=True)  # back to the platform's default


def share_memory() -> None:
    """Let the threads of this process use the same memory: what one has freed is there for the others, and what many
    strangers bring along, for an instant each, does not add up.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").mallopt(M_ARENA_MAX, ARENAS)
