"""Workers that share a queue of jobs, whatever they are: processes of this machine or actors of a Ray cluster.

A worker always has the next job waiting while it computes one, and among the jobs that wait for a worker the one that
is due first goes first. A worker that is lost is replaced, and its jobs are given out again: the result of a job is a
function of the job alone, so the run does not notice.
"""

from __future__ import annotations

import heapq
import sys
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar

from spyker.engines.engine import Engine, EvaluateJob, Job, TrainJob
from spyker.errors import ClientTrainingError, TaskError, WorkerCrashedError
from spyker.vectors import Vector

DEPTH = 2  # jobs per worker: one that it computes and one that waits for it
LOSSES = 3  # a worker that is lost so often without having finished a job ends the run


class WorkerLostError(RuntimeError):
    """A worker was taken away from outside; another may do better."""


class QueuedJob(NamedTuple):
    """A job in the queue. Orders are served by due time, and in the order of submission where that is equal."""

    due: float
    number: int
    job: Job


class Worker(ABC):
    """The caller's side of one worker, which answers in the order in which it was asked.

    Each method may raise :class:`WorkerLostError`, or :class:`TaskError` where the fault is the task's own.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.orders: deque[QueuedJob] = deque()  # in flight
        self.ready = True  # to be given jobs
        self.losses = 0  # since it last finished a job

    def takes(self, job: Job) -> bool:
        """Whether it can be given this job now."""
        return self.ready and len(self.orders) < DEPTH

    @abstractmethod
    def begin(self) -> None:
        """Start, or start again after :meth:`end`."""

    @abstractmethod
    def give(self, job: Job) -> None:
        """Ask for a job; it is the last of ``orders`` already."""

    @abstractmethod
    def take(self) -> None:
        """Receive what the worker has to say: as a rule the answer to the first of ``orders``."""

    @abstractmethod
    def end(self) -> None:
        """End it, if it has not ended; what it is computing is of no use to anybody."""

    def failed(self, error: TaskError) -> None:
        """The first of ``orders`` failed. A training keeps its error until it is due; anything else ends the run."""
        job = self.next_job()
        if not isinstance(job, TrainJob) or not isinstance(error, ClientTrainingError):
            raise error
        job.error = error

    def next_job(self) -> Job:
        """The job of the first of ``orders``, whose answer is there."""
        self.losses = 0
        return self.orders.popleft().job


W = TypeVar("W", bound=Worker)


class PoolEngine(Engine, Generic[W]):
    """Gives jobs to workers and replaces those that are lost."""

    def __init__(self, workers: Sequence[W]) -> None:
        self.workers = workers
        self._waiting: list[QueuedJob] = []
        self._submitted = 0
        for worker in workers:
            worker.begin()

    @abstractmethod
    def having_news(self, *, wait: bool) -> Iterable[W]:
        """The workers from which something can be taken now; with ``wait``, as soon as there is one."""

    def submit(self, job: Job, due: float) -> None:
        """Queue the job and feed whoever is free."""
        heapq.heappush(self._waiting, QueuedJob(due, self._submitted, job))
        self._submitted += 1
        self._step(wait=False)

    def trained(self, job: TrainJob) -> Vector:
        """Wait for a training."""
        while job.result is None and job.error is None:
            self._step(wait=True)
        if job.error is not None:
            raise job.error
        assert job.result is not None
        return job.result

    def score(self, job: EvaluateJob) -> float:
        """Wait for an evaluation."""
        while job.result is None:
            self._step(wait=True)
        return job.result

    def cancel(self) -> None:
        """Drop what no worker has been given yet."""
        self._waiting.clear()

    def close(self) -> None:
        """End the workers."""
        for worker in self.workers:
            worker.end()

    def _step(self, *, wait: bool) -> None:
        for worker in self.having_news(wait=wait):
            try:
                worker.take()
            except WorkerLostError as loss:
                self._replace(worker, loss)
        self._feed()

    def _feed(self) -> None:
        while self._waiting:
            worker = min(self.workers, key=lambda w: len(w.orders) if w.ready else DEPTH)
            if not worker.takes(self._waiting[0].job):
                return
            order = heapq.heappop(self._waiting)
            worker.orders.append(order)
            try:
                worker.give(order.job)
            except WorkerLostError as loss:
                self._replace(worker, loss)

    def _replace(self, worker: W, loss: WorkerLostError) -> None:
        """Put another in the place of a worker that was lost, and its jobs back into the queue."""
        worker.losses += 1
        if worker.losses == LOSSES:
            raise WorkerCrashedError(f"{loss}, {LOSSES} times without having finished a job in between") from None
        print(f"spyker: warning: {loss}; another takes its place", file=sys.stderr)
        for order in worker.orders:
            heapq.heappush(self._waiting, order)
        worker.orders.clear()
        worker.end()
        worker.begin()
