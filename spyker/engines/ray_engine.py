"""Training on a Ray cluster, an existing one or one started on this machine.

Each worker is an actor with one CPU, which creates the task from its specification and uses one torch thread. A large
model is put into Ray's object store once, for all clients, and transferred to each node once; a small model is sent
with the job. Actors without a free CPU wait while the others work.
"""

from __future__ import annotations

import os
import socket
import sys
import weakref
from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import ray
from ray.exceptions import RayError, RayTaskError

from spyker.config.sections import show
from spyker.engines.engine import Job, SizeJob, TrainJob
from spyker.engines.pool import PoolEngine, Worker, WorkerLostError
from spyker.engines.process_settings import keep_memory, single_threaded
from spyker.errors import ClientTrainingError, TaskError, UsageError
from spyker.tasks.checked_task import CheckedTask
from spyker.tasks.registry import TaskSpec
from spyker.tasks.task import TrainingResult
from spyker.vectors import Vector

SMALL = 100_000  # bytes; Ray's limit for inlined arguments, which are faster than its store
CONNECT_TIMEOUT = 10.0  # seconds
PATIENCE = 60.0  # seconds without any actor before a warning


class TrainingActor:
    """An actor with a task."""

    task: CheckedTask

    def make(self, spec: TaskSpec) -> None:
        """Create the task. Not in the constructor, so that errors of the task are reported as such."""
        keep_memory()
        self.task = spec.guarded()
        single_threaded()

    def call(self, method: str, *arguments: object, **named: object) -> Any:
        """Call a method of the task."""
        return getattr(self.task, method)(*arguments, **named)


class ObjectStore:
    """Puts large vectors into Ray's object store, each once during its lifetime.

    Only read-only vectors are cached.
    """

    def __init__(self) -> None:
        self._references: dict[int, tuple[weakref.ref[Vector], Any]] = {}

    def put(self, vector: Vector) -> Any:
        """Return a reference to the vector in the store, or a small vector itself."""
        if vector.nbytes <= SMALL:
            return vector
        if vector.flags.writeable:
            return ray.put(vector)
        key = id(vector)  # arrays have no hash; the entry is removed with the vector, before the id can be reused
        if key not in self._references:
            self._references[key] = weakref.ref(vector, lambda _: self._references.pop(key)), ray.put(vector)
        return self._references[key][1]

    def __len__(self) -> int:
        return len(self._references)


class RayWorker(Worker):
    """A worker that is an actor of a Ray cluster."""

    def __init__(self, number: int, spec: TaskSpec, store: ObjectStore) -> None:
        super().__init__(number)
        self._spec, self._store = spec, store

    def start(self) -> None:
        """Create the actor. It is ready when it is scheduled and has created the task."""
        self.ready = False
        self.actor = ray.remote(num_cpus=1)(TrainingActor).remote()
        self.answers = deque([self.actor.make.remote(self._spec)])  # references, in the order of the calls

    def send(self, job: Job) -> None:
        """Send the actor a job."""
        call = self.actor.call.remote
        if isinstance(job, SizeJob):
            answer = call("size", job.client)
        elif isinstance(job, TrainJob):
            weights = self._store.put(job.weights)
            arguments = (job.client, weights, job.rate, job.step, job.state, job.age)
            answer = call("train", *arguments, evaluate=job.evaluate)
        else:
            answer = call("evaluate", self._store.put(job.vector()), job.states)
        self.answers.append(answer)

    def receive(self) -> None:
        """Receive the first result, copied out of the read-only object store."""
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
        job = self.finished_job()
        if isinstance(job, SizeJob):
            job.result = answer
        elif not isinstance(job, TrainJob):
            job.finish(answer)
        elif isinstance(answer, TrainingResult):
            job.finish(replace(answer, weights=np.array(answer.weights)))
        else:
            job.finish(np.array(answer))

    def stop(self) -> None:
        """Kill the actor."""
        ray.kill(self.actor)

    def _loss(self, error: RayError) -> WorkerLostError:
        reason = " ".join(str(error).split())
        return WorkerLostError(f"worker {self.number} of the Ray cluster was lost ({type(error).__name__}: {reason})")


class RayEngine(PoolEngine[RayWorker]):
    """An engine with ``count`` actors of a Ray cluster; default: one per CPU of the cluster."""

    def __init__(self, spec: TaskSpec, count: int | None = None, address: str | None = None) -> None:
        self._own = connect(address, count)
        self.store = ObjectStore()
        count = count or max(1, int(ray.cluster_resources().get("CPU", 0)))
        super().__init__([RayWorker(i, spec, self.store) for i in range(count)])

    def with_messages(self, *, wait: bool) -> Iterable[RayWorker]:
        """Return the workers whose first result has arrived or failed."""
        first = {worker.answers[0]: worker for worker in self.workers if worker.answers}
        if not wait:
            done, _ = ray.wait(list(first), num_returns=len(first), timeout=0) if first else ([], [])
        else:
            while not (done := ray.wait(list(first), timeout=PATIENCE)[0]):
                if not any(worker.ready for worker in self.workers):
                    print(
                        f"spyker: warning: no worker has started for {PATIENCE:g} s; a worker needs one CPU, and the "
                        f"free resources of the Ray cluster are {ray.available_resources()}",
                        file=sys.stderr,
                    )
        return [first[answer] for answer in done]

    def close(self) -> None:
        """Kill the actors, and close the connection or cluster that this engine created."""
        super().close()
        if self._own:
            ray.shutdown()


def connect(address: str | None, processors: int | None) -> bool:
    """Connect to a cluster or start one, unless connected; return whether a connection was created."""
    if ray.is_initialized():
        return False
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no usage reports
    address = address or os.environ.get("RAY_ADDRESS") or "local"
    local = address == "local"
    try:
        check_port(address)
        ray.init(
            address,
            num_cpus=processors if local else None,
            include_dashboard=False if local else None,
            logging_level="ERROR" if local else "WARNING",
            log_to_driver=False,  # keep node logs out of the progress output
        )
    except (OSError, RuntimeError, ValueError) as error:
        raise UsageError(
            "--ray-address", f"cannot connect to {show(address)} ({error})", "Give the address that `ray start` printed"
        ) from None
    return True


def check_port(address: str) -> None:
    """Raise an error if ``host:port`` refuses connections; Ray itself would retry for minutes."""
    host, colon, port = address.rpartition(":")
    if colon and "/" not in host:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_TIMEOUT).close()
