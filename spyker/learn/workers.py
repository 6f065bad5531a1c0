"""Training in worker processes.

Each worker makes the task for itself from its recipe and computes with one torch thread. Weights pass through shared
memory; a pipe carries a few bytes per job. A worker always has the next job waiting while it computes one, and among
the jobs that wait for a worker the one that is due first goes first.
"""

from __future__ import annotations

import ctypes
import heapq
import multiprocessing
import signal
import struct
from collections import deque
from collections.abc import Iterable
from multiprocessing.connection import Connection, wait
from typing import Any

import numpy as np

from spyker.learn.engine import Engine, EvaluateJob, Job, TrainJob, single_threaded
from spyker.learn.registry import Recipe
from spyker.protocol.messages import Vector

DEPTH = 2  # jobs per worker: one that it computes and one that waits for it
ORDER = struct.Struct("<qdq")  # client (-1: evaluate), rate, step
ANSWER = struct.Struct("<d")  # score


class WorkerDiedError(RuntimeError):
    """A worker process ended before its time."""


class Workers(Engine):
    """A fixed number of processes that share the work."""

    def __init__(self, recipe: Recipe, parameters: int, count: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._workers = [_Worker(context, recipe, parameters, i) for i in range(count)]
        self._by_pipe = {worker.pipe: worker for worker in self._workers}
        self._waiting: list[tuple[float, int, Job]] = []
        self._submitted = 0

    def submit(self, job: Job, due: float) -> None:
        """Queue the job and feed whoever is free."""
        heapq.heappush(self._waiting, (due, self._submitted, job))
        self._submitted += 1
        self._collect(wait(self._by_pipe, 0))
        self._feed()

    def trained(self, job: TrainJob) -> Vector:
        """Wait for a training."""
        while job.result is None:
            self._step()
        return job.result

    def score(self, job: EvaluateJob) -> float:
        """Wait for an evaluation."""
        while job.result is None:
            self._step()
        return job.result

    def cancel(self) -> None:
        """Drop what no worker has been given yet."""
        self._waiting.clear()

    def close(self) -> None:
        """End the workers; what they are computing is of no use to anybody."""
        for worker in self._workers:
            worker.end()

    def _step(self) -> None:
        self._collect(wait(self._by_pipe))
        self._feed()

    def _collect(self, pipes: Iterable[Any]) -> None:
        for pipe in pipes:
            self._by_pipe[pipe].take()

    def _feed(self) -> None:
        while self._waiting:
            worker = min(self._workers, key=lambda w: len(w.jobs))
            if len(worker.jobs) == DEPTH:
                return
            worker.give(heapq.heappop(self._waiting)[2])


class _Worker:
    """The caller's side of one worker process."""

    def __init__(self, context: Any, recipe: Recipe, parameters: int, number: int) -> None:
        self.number = number
        self.jobs: deque[tuple[int, Job]] = deque()  # in flight, with their slots
        self.turn = 0  # jobs are answered in their order, so slots are used in turn, on both sides
        self.pipe, theirs = context.Pipe()
        memory = context.RawArray(ctypes.c_float, DEPTH * parameters)
        self.slots = _slots(memory)
        self.process = context.Process(target=_serve, args=(theirs, memory, recipe), daemon=True)
        self.process.start()
        theirs.close()

    def give(self, job: Job) -> None:
        """Put the weights where the worker sees them and tell it what to do with them."""
        slot, self.turn = self.turn, (self.turn + 1) % DEPTH
        np.copyto(self.slots[slot], job.weights)
        order = (job.client, job.rate, job.step) if isinstance(job, TrainJob) else (-1, 0.0, 0)
        self.jobs.append((slot, job))
        try:
            self.pipe.send_bytes(ORDER.pack(*order))
        except OSError:
            raise self._death() from None

    def take(self) -> None:
        """Receive the answer to the oldest job."""
        try:
            (score,) = ANSWER.unpack(self.pipe.recv_bytes())
        except (EOFError, OSError):
            raise self._death() from None
        slot, job = self.jobs.popleft()
        if isinstance(job, TrainJob):
            job.result = self.slots[slot].copy()
        else:
            job.result = score

    def end(self) -> None:
        """End the process."""
        self.pipe.close()
        self.process.terminate()
        self.process.join()

    def _death(self) -> WorkerDiedError:
        self.process.join(10)
        return WorkerDiedError(
            f"training worker {self.number} ended unexpectedly (exit code {self.process.exitcode}); "
            "its own error, if any, stands above. If the machine ran out of memory, use fewer --workers"
        )


def _slots(memory: Any) -> list[Vector]:
    """The shared memory as one vector per job in flight."""
    return list(np.frombuffer(memory, np.float32).reshape(DEPTH, -1))


def _serve(pipe: Connection, memory: Any, recipe: Recipe) -> None:
    """The worker's side: do what is ordered, in its order, for as long as anybody listens."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the caller, who then ends us
    task = recipe.make()
    single_threaded()
    slots, turn = _slots(memory), 0
    while True:
        try:
            client, rate, step = ORDER.unpack(pipe.recv_bytes())
        except EOFError:
            return
        weights, score = slots[turn], 0.0
        if client < 0:
            score = task.evaluate(weights)
        else:
            np.copyto(weights, task.train(client, weights, rate, step))
        turn = (turn + 1) % DEPTH
        try:
            pipe.send_bytes(ANSWER.pack(score))
        except BrokenPipeError:
            return
