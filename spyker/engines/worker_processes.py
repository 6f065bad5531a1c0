"""Training in worker processes.

Each worker creates the task from its specification and uses one torch thread. Weights are passed in shared memory, and
trained in place where the task can; a pipe carries a few bytes per job, followed by the client's state and results.
"""

from __future__ import annotations

import contextlib
import multiprocessing.connection
import struct
from collections import deque
from collections.abc import Iterable
from multiprocessing.connection import Connection
from typing import Any

import msgspec
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
from spyker.errors import ClientTrainingError, TaskError, WorkerCrashedError
from spyker.tasks.checked_task import FLOAT32, CheckedTask
from spyker.tasks.registry import TaskSpec
from spyker.tasks.task import ClientEvaluation, EvaluationResult, TrainingResult
from spyker.vectors import Vector

ORDER = struct.Struct("<cqqdqd")  # type, number of the vector, client, rate, step, age; then states, if any
NO_VECTOR = -1
TRAIN, TRAIN_AND_EVALUATE, EVALUATE, COUNT = b"t", b"b", b"e", b"c"
ANSWER = struct.Struct("<cd")  # type, score; then further results
WEIGHTS, TRAINED = b"w", b"t"  # weights or a score only; with further results
FAILED, BROKEN = b"f", b"b"  # the job failed: error and reason; the task could not be created: error
SMALL = 16_384  # bytes that fit into a pipe without a reader


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
        large = len(_pickled_states(job)) > SMALL
        return super().accepts(job) and not (large and self.in_flight)

    def send(self, job: Job) -> None:
        """Copy the weights to shared memory and send the job."""
        if isinstance(job, SizeJob):
            self.given.append(None)
            order = ORDER.pack(COUNT, NO_VECTOR, job.client, 0.0, 0, 0.0)
        elif isinstance(job, TrainJob):
            number, vector = self._vectors.take()
            np.copyto(vector, job.weights)
            self.given.append((number, vector))
            kind = TRAIN_AND_EVALUATE if job.evaluate else TRAIN
            order = ORDER.pack(kind, number, job.client, job.rate, job.step, job.age)
        else:
            shared = self._vectors.number_of(job.weights)
            if shared is None:
                shared, vector = self._vectors.take()
                job.move_to(vector)
            self.given.append(None)
            order = ORDER.pack(EVALUATE, shared, 0, 0.0, 0, 0.0)
        try:
            self.pipe.send_bytes(order + _pickled_states(job))
        except OSError:
            raise self._exit_error() from None

    def receive(self) -> None:
        """Receive the result of the oldest job."""
        try:
            answer = self.pipe.recv_bytes()
        except (EOFError, OSError):
            raise self._exit_error() from None
        kind, score = ANSWER.unpack_from(answer)
        if kind == BROKEN:
            raise TaskError(answer[ANSWER.size :].decode())
        given = self.given.popleft()
        if kind == FAILED:
            text, reason = msgspec.msgpack.decode(answer[ANSWER.size :])
            self.failed(TaskError(text) if reason is None else ClientTrainingError(text, reason))
            return
        job = self.finished_job()
        if isinstance(job, SizeJob):
            job.result = int(score)
        elif not isinstance(job, TrainJob):
            also = answer[ANSWER.size :]
            job.finish(EvaluationResult(score, msgspec.msgpack.decode(also)) if also else score)
        else:
            assert given is not None
            trained = self._vectors.keep(*given)
            if kind == TRAINED:
                examples, metrics, state, evaluation = msgspec.msgpack.decode(answer[ANSWER.size :])
                evaluated = None if evaluation is None else ClientEvaluation(*evaluation)
                job.finish(TrainingResult(trained, examples, metrics, state, evaluated))
            else:
                job.finish(trained)

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


def _pickled_states(job: Job) -> bytes:
    """Return the pickled states that a job carries."""
    if isinstance(job, TrainJob):
        return job.state or b""
    if isinstance(job, SizeJob):
        return b""
    return b"" if job.states is None else msgspec.msgpack.encode(job.states)


def _serve(pipe: Connection, vectors: SharedVectors, spec: TaskSpec) -> None:
    """Run jobs in the worker process until the pipe is closed."""
    allow_processes()
    keep_memory()
    with contextlib.suppress(EOFError, OSError):  # the pipe was closed
        try:
            task = spec.guarded()
        except TaskError as error:
            pipe.send_bytes(ANSWER.pack(BROKEN, 0.0) + str(error).encode(errors="replace"))
            return
        task.task.train_only()
        large = FLOAT32.itemsize * vectors.size > KEPT_BYTES
        single_threaded()
        reuse_memory()
        while True:
            pipe.send_bytes(_answer(task, pipe.recv_bytes(), vectors))
            if large:
                trim_memory()


def _answer(task: CheckedTask, order: bytes, vectors: SharedVectors) -> bytes:
    """Run one job and return its result. Trained weights replace the received ones in shared memory."""
    kind, number, client, rate, step, age = ORDER.unpack_from(order)
    try:
        if kind == COUNT:
            return ANSWER.pack(WEIGHTS, task.size(client))
        if kind == EVALUATE:
            weights = vectors.private(number)  # some layers write to their parameters: others may read the same model
            states = order[ORDER.size :]
            scored = task.evaluate(weights, msgspec.msgpack.decode(states, type=dict[int, bytes]) if states else None)
            if isinstance(scored, EvaluationResult):
                return ANSWER.pack(WEIGHTS, scored.score) + msgspec.msgpack.encode(scored.also)
            return ANSWER.pack(WEIGHTS, scored)
        weights = vectors.at(number)
        state, evaluate = order[ORDER.size :] or None, kind == TRAIN_AND_EVALUATE
        trained = task.train(client, weights, rate, step, state, age, evaluate=evaluate)
    except TaskError as error:
        return _failure(error)
    result = trained.weights if isinstance(trained, TrainingResult) else trained
    np.copyto(weights, result)  # which does nothing if the task has trained in place
    if not isinstance(trained, TrainingResult):
        return ANSWER.pack(WEIGHTS, 0.0)
    found = trained.evaluation
    evaluation = None if found is None else (found.examples, found.scores)
    further = trained.examples, trained.metrics, trained.state, evaluation
    return ANSWER.pack(TRAINED, 0.0) + msgspec.msgpack.encode(further)


def _failure(error: TaskError) -> bytes:
    reason = error.reason if isinstance(error, ClientTrainingError) else None
    texts = [text and text.encode(errors="replace").decode() for text in (str(error), reason)]
    return ANSWER.pack(FAILED, 0.0) + msgspec.msgpack.encode(texts)
