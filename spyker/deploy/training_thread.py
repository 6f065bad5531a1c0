"""Where the clients of a process train."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from spyker.learn.engine import Here, TrainJob
from spyker.learn.task import Task
from spyker.protocol.messages import Train


class TrainingThread:
    """Trains for all clients of a process, one training at a time. More processes use more cores."""

    def __init__(self, task: Task, delays: Sequence[float] | None = None) -> None:
        """``delays`` say how long the training of each client takes at least, if it is to be paced."""
        self.task, self.delays = task, delays
        self._states: dict[int, bytes | None] = {}  # what clients keep from one training to the next
        self._engine = Here(task)
        self._thread = ThreadPoolExecutor(1, "training")

    @property
    def at_once(self) -> bool:
        """Whether a training is over before anybody could wait for it."""
        return self.task.trivial and self.delays is None

    def train_now(self, client: int, order: Train) -> TrainJob:
        """Train, and stop everything else in the meantime."""
        job = TrainJob(client, order.weights, order.rate, order.step, self._states.get(client))
        self._engine.trained(job)
        if job.left is not job.state:
            self._states[client] = job.left
        return job

    async def train(self, client: int, order: Train) -> TrainJob:
        """Train, without stopping the streams of this process."""
        began = time.monotonic()
        if self.task.trivial:
            job = self.train_now(client, order)
        else:
            job = await asyncio.get_running_loop().run_in_executor(self._thread, self.train_now, client, order)
        if self.delays is not None:
            await asyncio.sleep(began + self.delays[client] - time.monotonic())
        return job
