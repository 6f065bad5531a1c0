"""Training in worker processes.

Each worker creates the task from its specification and uses one torch thread. Weights are passed in shared memory, and
trained in place where the task can; a pipe carries everything else: the client's state, and results.
"""

from __future__ import annotations

import contextlib
import multiprocessing.connection
import pickle
from collections import deque
from collections.abc import Iterable
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from spyker.engines.engine import Job, SizeJob, TrainJob
from spyker.engines.pool import DEPTH, PoolEngine, Worker, WorkerLostError
from spyker.engines.process_settings import (
    KEPT_BYTES,
    allow_processes,
    keep_memory,
    reuse_memory,
    single_threaded,
    trim_memory,
)
from spyker.engines.shared_vectors import SharedVectors
from spyker.engines.spawn import spawn
from spyker.errors import TaskError, WorkerCrashedError
from spyker.tasks.checked_task import FLOAT32, CheckedTask
from spyker.tasks.registry import TaskSpec
from spyker.tasks.task import EvaluationResult, TrainingResult
from spyker.vectors import Vector

DONE, FAILED, BROKEN = "done", "failed", "broken"  # a job; a job; the creation of the task
SMALL = 16_384  # bytes that fit into a pipe without a reader
STATE = 16  # bytes that a client's state needs in a pipe besides its own


class WorkerProcess(Worker):
    """A worker process on this machine."""

    def __init__(self, number: int, spec: TaskSpec, vectors: SharedVectors) -> None:
        super().__init__(number)
        self._spec, self._vectors = spec, vectors

    def start(self) -> None:
        """Start the process."""
        self.given: deque[tuple[int, Vector] | None] = deque()  # the vectors of the trainings in flight
        self.process, self.pipe = spawn(_serve, self._vectors, self._spec)

    def accepts(self, job: Job) -> bool:
        """Return whether the job can be sent without a deadlock: a large state waits until the worker reads."""
        large = _state_bytes(job) > SMALL
        return super().accepts(job) and not (large and self.in_flight)

    def send(self, job: Job) -> None:
        """Copy the weights to shared memory and send the job."""
        given: tuple[int, Vector] | None = None
        order: tuple[Any, ...]
        if isinstance(job, SizeJob):
            order = "size", None, job.client
        elif isinstance(job, TrainJob):
            given = number, vector = self._vectors.take()
            np.copyto(vector, job.weights)
            order = "train", number, job.client, job.rate, job.step, job.state, job.age, job.evaluate
        else:
            shared = self._vectors.number_of(job.weights)
            if shared is None:
                shared, vector = self._vectors.take()
                job.move_to(vector)
            order = "evaluate", shared, job.states
        self.given.append(given)
        try:
            self.pipe.send_bytes(pickle.dumps(order))
        except OSError:
            raise self._exit_error() from None

    def receive(self) -> None:
        """Receive the result of the oldest job."""
        try:
            message = self.pipe.recv_bytes()
        except (EOFError, OSError):
            raise self._exit_error() from None
        outcome, answer = pickle.loads(message)  # from a process that this one started
        if outcome == BROKEN:
            raise TaskError(answer)
        given = self.given.popleft()
        if outcome == FAILED:
            self.failed(answer)
            return
        job = self.finished_job()
        if isinstance(job, SizeJob):
            job.result = answer
        elif not isinstance(job, TrainJob):
            job.finish(answer)
        else:
            assert given is not None
            trained = self._vectors.keep(*given)
            job.finish(trained if answer is None else TrainingResult(trained, *answer))

    def stop(self) -> None:
        """End the process."""
        self.pipe.close()
        self.process.terminate()
        self.process.join()
        self.given.clear()

    def _exit_error(self) -> Exception:
        self.process.join(10)
        code = self.process.exitcode
        if code is not None and code >= 0:  # not killed by a signal
            return WorkerCrashedError(f"training worker {self.number} exited (exit code {code})")
        return WorkerLostError(
            f"training worker {self.number} was killed (exit code {code}; if the machine ran out of memory, use fewer "
            "--workers)"
        )


class ProcessPoolEngine(PoolEngine[WorkerProcess]):
    """An engine with a fixed number of worker processes."""

    def __init__(self, spec: TaskSpec, parameters: int, count: int) -> None:
        self._large = FLOAT32.itemsize * parameters > KEPT_BYTES
        if self._large:
            reuse_memory()
        self._vectors = SharedVectors(parameters, (count + 1) * DEPTH, spare=count * DEPTH)  # a worker may be replaced
        super().__init__([WorkerProcess(i, spec, self._vectors) for i in range(count)])

    def memory(self) -> Vector | None:
        """Return shared memory, unless much of it is in use."""
        return self._vectors.spare()

    def close(self) -> None:
        """Stop the processes, and release the memory of large models."""
        super().close()
        if self._large:
            reuse_memory(reuse=False)

    def with_messages(self, *, wait: bool) -> Iterable[WorkerProcess]:
        """Return the workers whose pipe has a message or is broken."""
        by_pipe: dict[Any, WorkerProcess] = {worker.pipe: worker for worker in self.workers}
        return [by_pipe[pipe] for pipe in multiprocessing.connection.wait(by_pipe, None if wait else 0)]


def _state_bytes(job: Job) -> int:
    """Return the size of the clients' states that a job carries."""
    if isinstance(job, TrainJob):
        return len(job.state or b"")
    if isinstance(job, SizeJob) or job.states is None:
        return 0
    return sum(len(state) + STATE for state in job.states.values())


def _serve(pipe: Connection, vectors: SharedVectors, spec: TaskSpec) -> None:
    """Run jobs in the worker process until the pipe is closed."""
    allow_processes()
    keep_memory()
    with contextlib.suppress(EOFError, OSError):  # the pipe was closed
        try:
            task = spec.guarded()
        except TaskError as error:
            pipe.send_bytes(pickle.dumps((BROKEN, str(error))))
            return
        task.task.train_only()
        large = FLOAT32.itemsize * vectors.size > KEPT_BYTES
        single_threaded()
        reuse_memory()
        while True:
            pipe.send_bytes(pickle.dumps(_answer(task, vectors, *pickle.loads(pipe.recv_bytes()))))
            if large:
                trim_memory()


def _answer(
    task: CheckedTask, vectors: SharedVectors, kind: str, number: int, *arguments: Any
) -> tuple[str, float | EvaluationResult | tuple[Any, ...] | TaskError | None]:
    """Run one job and return its outcome. Trained weights replace the received ones in shared memory."""
    try:
        if kind == "size":
            return DONE, task.size(*arguments)
        if kind == "evaluate":  # some layers write to their parameters, and others may read the same model
            return DONE, task.evaluate(vectors.private(number), *arguments)
        weights = vectors.at(number)
        client, rate, step, state, age, evaluate = arguments
        trained = task.train(client, weights, rate, step, state, age, evaluate=evaluate)
    except TaskError as error:
        return FAILED, error
    result = trained.weights if isinstance(trained, TrainingResult) else trained
    np.copyto(weights, result)  # which does nothing if the task has trained in place
    if not isinstance(trained, TrainingResult):
        return DONE, None
    return DONE, (trained.examples, trained.metrics, trained.state, trained.evaluation)
