"""Training for the clients of a process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from spyker.engines.divergence import explain_divergence
from spyker.engines.engine import InProcessEngine, TrainJob
from spyker.errors import TaskError
from spyker.protocol.messages import Train
from spyker.tasks.evaluation_schedule import EvaluationSchedule
from spyker.tasks.task import Task
from spyker.vectors import is_finite


class TrainingThread:
    """Trains for all clients of a process, one training at a time. More processes use more cores."""

    def __init__(
        self, task: Task, delays: Sequence[float] | None = None, evaluation_interval: float | None = None
    ) -> None:
        """Create the thread.

        Args:
            task: the task of the clients.
            delays: minimum durations of the clients' trainings in seconds.
            evaluation_interval: each client evaluates the received model once in this many seconds; ``None``: never.

        """
        self.task, self.delays = task, delays
        self._schedule = EvaluationSchedule(evaluation_interval)
        self._states: dict[int, bytes | None] = {}  # client states between trainings
        self._engine = InProcessEngine(task)
        self._thread = ThreadPoolExecutor(1, "training")

    @property
    def at_once(self) -> bool:
        """Whether training takes no noticeable time, so that no thread is needed."""
        return self.task.trivial and self.delays is None

    async def train(self, client: int, order: Train) -> TrainJob:
        """Train without blocking the event loop. If the call is cancelled, the client's state does not change."""
        began = time.monotonic()
        evaluate = self._schedule.due(client, began)
        job = TrainJob(client, order.weights, order.rate, order.step, self._states.get(client), order.age, evaluate)
        if self.task.trivial:
            self._do(job)
        else:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._do, job)
        if self.delays is not None:
            await asyncio.sleep(began + self.delays[client] - time.monotonic())
        if job.left is not job.state:
            self._states[client] = job.left
        return job

    def _do(self, job: TrainJob) -> None:
        """Train; raise a ``TaskError`` that explains the divergence if the result is not finite."""
        if not is_finite(self._engine.trained(job)):
            raise TaskError(f"the weights are not finite {explain_divergence(job, self.task)}")
