"""Training on a Ray cluster: one that is started on this machine, or one that exists already.

Each worker is an actor with one processor, which makes the task for itself from its recipe and computes with one torch
thread. A model goes into Ray's object store once, however many clients it was sent to, and from there to each node
once; a small one travels with the job. An actor that finds no free processor stays in line, and the others work on
meanwhile.
"""

from __future__ import annotations

import os
import socket
import sys
import weakref
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import ray
from ray.exceptions import RayError, RayTaskError

from spyker.config.sections import show
from spyker.engines.engine import Job, TrainJob, keep_memory, single_threaded
from spyker.engines.pool import PoolEngine, Worker, WorkerLostError
from spyker.errors import ClientTrainingError, TaskError, UsageError
from spyker.tasks.checked_task import CheckedTask
from spyker.tasks.registry import TaskSpec
from spyker.tasks.task import EvaluationResult, TrainingResult
from spyker.vectors import Vector

SMALL = 100_000  # bytes; Ray's own limit for what it sends along with a call, which is faster than its store
KNOCK_SECONDS = 10.0
PATIENCE = 60.0  # seconds without a single actor, after which the user is told


class TrainingActor:
    """The actor: a task, somewhere in the cluster."""

    task: CheckedTask

    def make(self, recipe: TaskSpec) -> None:
        """Make the task. Not in the constructor: what fails here is the task's own fault and arrives as such."""
        keep_memory()
        self.task = recipe.guarded()
        single_threaded()

    def train(
        self, client: int, weights: Vector, rate: float, step: int, state: bytes | None, age: float
    ) -> Vector | TrainingResult:
        """Train."""
        return self.task.train(client, weights, rate, step, state, age)

    def evaluate(self, weights: Vector, states: Mapping[int, bytes] | None) -> float | EvaluationResult:
        """Evaluate."""
        return self.task.evaluate(weights, states)


class ObjectStore:
    """Puts vectors into Ray's object store, each once for as long as it lives. Small ones are not worth it.

    Only vectors that cannot be written any more are remembered; another might be a different one the next time.
    """

    def __init__(self) -> None:
        self._kept: dict[int, tuple[weakref.ref[Vector], Any]] = {}

    def put(self, vector: Vector) -> Any:
        """What to send instead of the vector: a reference to it in the store, or itself."""
        if vector.nbytes <= SMALL:
            return vector
        if vector.flags.writeable:
            return ray.put(vector)
        key = id(vector)  # arrays have no hash; the entry goes when the vector does, before its id can be another's
        if key not in self._kept:
            self._kept[key] = weakref.ref(vector, lambda _: self._kept.pop(key)), ray.put(vector)
        return self._kept[key][1]

    def __len__(self) -> int:
        return len(self._kept)


class RayWorker(Worker):
    """A worker that is an actor of a Ray cluster."""

    def __init__(self, number: int, recipe: TaskSpec, store: ObjectStore) -> None:
        super().__init__(number)
        self._recipe, self._store = recipe, store

    def begin(self) -> None:
        """Ask Ray for an actor. It is ready when it has found its place and made the task."""
        self.ready = False
        self.actor = ray.remote(num_cpus=1)(TrainingActor).remote()
        self.answers = deque([self.actor.make.remote(self._recipe)])  # references, in the order of the questions

    def give(self, job: Job) -> None:
        """Send the actor a job."""
        weights = self._store.put(job.weights)
        if isinstance(job, TrainJob):
            told = (job.client, weights, job.rate, job.step, job.state, job.age)
            self.answers.append(self.actor.train.remote(*told))
        else:
            self.answers.append(self.actor.evaluate.remote(weights, job.states))

    def take(self) -> None:
        """Receive the first answer; copied, for what lies in the store is read-only and would stay there."""
        try:
            answer = ray.get(self.answers.popleft())
        except RayTaskError as error:
            if isinstance(error.cause, RayError):
                raise self._loss(error.cause) from None
            if isinstance(error.cause, ClientTrainingError):
                self.failed(error.cause)
                return
            raise TaskError(str(error.cause)) from None
        except RayError as error:
            raise self._loss(error) from None
        if not self.ready:
            self.ready = True
            return
        job = self.next_job()
        if not isinstance(job, TrainJob):
            job.finish(answer)
        elif isinstance(answer, TrainingResult):
            job.finish(replace(answer, weights=np.array(answer.weights)))
        else:
            job.finish(np.array(answer))

    def end(self) -> None:
        """End the actor."""
        ray.kill(self.actor)

    def _loss(self, error: RayError) -> WorkerLostError:
        reason = " ".join(str(error).split())
        return WorkerLostError(f"worker {self.number} of the Ray cluster was lost ({type(error).__name__}: {reason})")


class RayEngine(PoolEngine[RayWorker]):
    """Actors of a Ray cluster that share the work: so many, or one per processor of the cluster."""

    def __init__(self, recipe: TaskSpec, count: int | None = None, address: str | None = None) -> None:
        self._own = connect(address, count)
        self.store = ObjectStore()
        count = count or max(1, int(ray.cluster_resources().get("CPU", 0)))
        super().__init__([RayWorker(i, recipe, self.store) for i in range(count)])

    def having_news(self, *, wait: bool) -> Iterable[RayWorker]:
        """The workers whose first answer is there, or has failed."""
        first = {worker.answers[0]: worker for worker in self.workers if worker.answers}
        if not wait:
            done, _ = ray.wait(list(first), num_returns=len(first), timeout=0) if first else ([], [])
        else:
            while not (done := ray.wait(list(first), timeout=PATIENCE)[0]):
                if not any(worker.ready for worker in self.workers):
                    print(
                        f"spyker: warning: no worker has begun for {PATIENCE:g} s; {ray.available_resources()} are "
                        f"free in the Ray cluster, and a worker needs one CPU",
                        file=sys.stderr,
                    )
        return [first[answer] for answer in done]

    def close(self) -> None:
        """End the actors, and the connection or the cluster that this engine made."""
        super().close()
        if self._own:
            ray.shutdown()


def connect(address: str | None, processors: int | None) -> bool:
    """Connect to a cluster, or start one here; a connection that exists is used. Returns whether it was made."""
    if ray.is_initialized():
        return False
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # a cluster that we start reports to nobody
    address = address or os.environ.get("RAY_ADDRESS") or "local"
    local = address == "local"
    try:
        knock(address)
        ray.init(
            address,
            num_cpus=processors if local else None,
            include_dashboard=False if local else None,
            logging_level="ERROR" if local else "WARNING",
            log_to_driver=False,  # the logs of nodes do not belong between the lines of progress
        )
    except (OSError, RuntimeError, ValueError) as error:
        raise UsageError(
            "--ray-address", f"cannot connect to {show(address)} ({error})", "Give the address that `ray start` printed"
        ) from None
    return True


def knock(address: str) -> None:
    """Raise an error if nobody listens at ``host:port``; Ray itself would try for minutes."""
    host, colon, port = address.rpartition(":")
    if colon and "/" not in host:
        socket.create_connection((host.strip("[]"), int(port)), KNOCK_SECONDS).close()
