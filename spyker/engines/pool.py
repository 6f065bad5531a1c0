"""A pool of workers with a queue of jobs: processes of this machine or actors of a Ray cluster.

Each worker computes one job while the next one waits. Queued jobs are ordered by due time. A lost worker is replaced
and its jobs are requeued: the result depends only on the job, so the run is not affected.
"""

from __future__ import annotations

import heapq
import sys
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar

from spyker.engines.engine import Engine, Job, TrainJob
from spyker.errors import ClientTrainingError, TaskError, WorkerCrashedError

DEPTH = 2  # jobs per worker: one running, one waiting
MAX_LOSSES = 3  # consecutive losses of a worker, without a finished job, that end the run


class WorkerLostError(RuntimeError):
    """A worker was killed from outside; a replacement may succeed."""


class QueuedJob(NamedTuple):
    """A queued job, ordered by due time, then by submission."""

    due: float
    number: int
    job: Job


class Worker(ABC):
    """The caller's side of a worker, which returns results in the order of its jobs.

    Each method may raise :class:`WorkerLostError`, or :class:`TaskError` where the fault is the task's own.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.in_flight: deque[QueuedJob] = deque()
        self.ready = True  # to be given jobs
        self.losses = 0  # since it last finished a job

    def accepts(self, job: Job) -> bool:
        """Return whether the worker can accept this job now."""
        return self.ready and len(self.in_flight) < DEPTH

    @abstractmethod
    def start(self) -> None:
        """Start, or start again after :meth:`stop`."""

    @abstractmethod
    def send(self, job: Job) -> None:
        """Send a job, which the caller has appended to ``in_flight``."""

    @abstractmethod
    def receive(self) -> None:
        """Receive one message of the worker: usually the result of the first job of ``in_flight``."""

    @abstractmethod
    def stop(self) -> None:
        """Stop the worker; its running job is discarded."""

    def failed(self, error: TaskError) -> None:
        """Store the error of a training until it is due; any other error ends the run."""
        job = self.finished_job()
        if not isinstance(job, TrainJob) or not isinstance(error, ClientTrainingError):
            raise error
        job.error = error

    def finished_job(self) -> Job:
        """Remove and return the first job of ``in_flight``, whose result has arrived."""
        self.losses = 0
        return self.in_flight.popleft().job


W = TypeVar("W", bound=Worker)


class PoolEngine(Engine, Generic[W]):
    """An engine that distributes jobs to workers and replaces lost workers."""

    def __init__(self, workers: Sequence[W]) -> None:
        self.workers = workers
        self._waiting: list[QueuedJob] = []
        self._submitted = 0
        for worker in workers:
            worker.start()

    @abstractmethod
    def with_messages(self, *, wait: bool) -> Iterable[W]:
        """Return the workers with a message; with ``wait``, block until there is one."""

    def submit(self, job: Job, due: float) -> None:
        """Queue the job and assign jobs to free workers."""
        heapq.heappush(self._waiting, QueuedJob(due, self._submitted, job))
        self._submitted += 1
        self._step(wait=False)

    def finish(self, job: Job) -> None:
        """Wait until a worker has finished the job."""
        while job.result is None and not (isinstance(job, TrainJob) and job.error is not None):
            self._step(wait=True)

    def cancel(self) -> None:
        """Drop jobs that no worker has received."""
        self._waiting.clear()

    def close(self) -> None:
        """Stop the workers."""
        for worker in self.workers:
            worker.stop()

    def _step(self, *, wait: bool) -> None:
        for worker in self.with_messages(wait=wait):
            try:
                worker.receive()
            except WorkerLostError as loss:
                self._replace(worker, loss)
        self._assign()

    def _assign(self) -> None:
        while self._waiting:
            worker = min(self.workers, key=lambda w: len(w.in_flight) if w.ready else DEPTH)
            if not worker.accepts(self._waiting[0].job):
                return
            order = heapq.heappop(self._waiting)
            worker.in_flight.append(order)
            try:
                worker.send(order.job)
            except WorkerLostError as loss:
                self._replace(worker, loss)

    def _replace(self, worker: W, loss: WorkerLostError) -> None:
        """Replace a lost worker and requeue its jobs."""
        worker.losses += 1
        if worker.losses == MAX_LOSSES:
            raise WorkerCrashedError(f"{loss}, {MAX_LOSSES} times without a finished job in between") from None
        print(f"spyker: warning: {loss}; a new worker replaces it", file=sys.stderr)
        for order in worker.in_flight:
            heapq.heappush(self._waiting, order)
        worker.in_flight.clear()
        worker.stop()
        worker.start()
