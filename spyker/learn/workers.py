"""Training in worker processes.

Each worker makes the task for itself from its recipe and computes with one torch thread. Weights pass through shared
memory; a pipe carries a few bytes per job.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import multiprocessing.connection
import signal
import struct
import threading
from collections.abc import Iterable, Iterator
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from spyker.learn.engine import Job, TrainJob, keep_memory, single_threaded
from spyker.learn.pool import DEPTH, Pool, Worker, WorkerDiedError, WorkerLostError
from spyker.learn.registry import Recipe
from spyker.vectors import Vector

ORDER = struct.Struct("<qdq")  # client (-1: evaluate), rate, step
ANSWER = struct.Struct("<d")  # score


class Process(Worker):
    """A worker that is a process of this machine."""

    def __init__(self, number: int, recipe: Recipe, parameters: int) -> None:
        super().__init__(number)
        self._recipe, self._parameters = recipe, parameters

    def begin(self) -> None:
        """Start the process."""
        context = multiprocessing.get_context("spawn")
        self.given = self.taken = 0  # jobs are answered in their order, so slots are used in turn, on both sides
        self.pipe, theirs = context.Pipe()
        memory = context.RawArray(ctypes.c_float, DEPTH * self._parameters)
        self.slots = _slots(memory)
        self.process = context.Process(target=_serve, args=(theirs, memory, self._recipe), daemon=True)
        with interrupts_ignored():  # which the new process inherits: Ctrl-C is for the caller, who then ends it
            self.process.start()
        theirs.close()

    def give(self, job: Job) -> None:
        """Put the weights where the worker sees them and tell it what to do with them."""
        np.copyto(self.slots[self.given % DEPTH], job.weights)
        self.given += 1
        order = (job.client, job.rate, job.step) if isinstance(job, TrainJob) else (-1, 0.0, 0)
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
        slot = self.slots[self.taken % DEPTH]
        self.taken += 1
        self.answered(slot.copy() if isinstance(self.orders[0].job, TrainJob) else score)

    def end(self) -> None:
        """End the process."""
        self.pipe.close()
        self.process.terminate()
        self.process.join()

    def _death(self) -> Exception:
        self.process.join(10)
        code = self.process.exitcode
        if code is not None and code >= 0:  # nobody killed it
            return WorkerDiedError(
                f"training worker {self.number} ended unexpectedly (exit code {code}); its own error stands above"
            )
        return WorkerLostError(
            f"training worker {self.number} was killed (exit code {code}; if the machine ran out of memory, use fewer "
            "--workers)"
        )


class Workers(Pool[Process]):
    """A fixed number of processes that share the work."""

    def __init__(self, recipe: Recipe, parameters: int, count: int) -> None:
        super().__init__([Process(i, recipe, parameters) for i in range(count)])

    def having_news(self, *, wait: bool) -> Iterable[Process]:
        """The workers whose pipe has an answer, or is broken."""
        by_pipe: dict[Any, Process] = {worker.pipe: worker for worker in self.workers}
        return [by_pipe[pipe] for pipe in multiprocessing.connection.wait(by_pipe, None if wait else 0)]


@contextlib.contextmanager
def interrupts_ignored() -> Iterator[None]:
    """Let Ctrl-C pass for a moment. Only the main thread can, and only it would be interrupted."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _slots(memory: Any) -> list[Vector]:
    """The shared memory as one vector per job in flight."""
    return list(np.frombuffer(memory, np.float32).reshape(DEPTH, -1))


def _serve(pipe: Connection, memory: Any, recipe: Recipe) -> None:
    """The worker's side: do what is ordered, in its order, for as long as anybody listens."""
    keep_memory()
    task = recipe.make()
    single_threaded()
    slots, turn = _slots(memory), 0
    while True:
        try:
            client, rate, step = ORDER.unpack(pipe.recv_bytes())
        except (EOFError, OSError):
            return
        weights, score = slots[turn], 0.0
        if client < 0:
            score = task.evaluate(weights)
        else:
            np.copyto(weights, task.train(client, weights, rate, step))
        turn = (turn + 1) % DEPTH
        try:
            pipe.send_bytes(ANSWER.pack(score))
        except OSError:
            return
