"""Training for the clients of a process."""

from __future__ import annotations

import asyncio
import pickle
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import cloudpickle

from spyker.engines.divergence import explain_divergence
from spyker.engines.engine import InProcessEngine, TrainJob
from spyker.errors import TaskError
from spyker.net.client_state import ClientStates
from spyker.net.ledger_file import ClientLedgers
from spyker.protocol.messages import Train
from spyker.tasks.evaluation_schedule import EvaluationSchedule
from spyker.tasks.task import Task
from spyker.vectors import is_finite


class TrainingThread:
    """Trains for all clients of a process, one training at a time. More processes use more cores."""

    def __init__(
        self,
        task: Task,
        delays: Sequence[float] | None = None,
        evaluation_interval: float | None = None,
        states: ClientStates | None = None,
        ledgers: ClientLedgers | None = None,
    ) -> None:
        """Create the thread.

        Args:
            task: the task of the clients.
            delays: minimum durations of the clients' trainings in seconds.
            evaluation_interval: each client evaluates the received model once in this many seconds; ``None``: never.
            states: where clients save their states; ``None``: only in memory.
            ledgers: where clients book the privacy cost of trainings; ``None``: trainings have none.

        """
        self.task, self.delays = task, delays
        self._schedule = EvaluationSchedule(evaluation_interval)
        self._stored, self._ledgers = states, ledgers
        self._states: dict[int, bytes | None] = {}  # client states between trainings
        self._saving: dict[int, asyncio.Future[None]] = {}  # saves under way, by client
        self._disk = ThreadPoolExecutor(1, "state")
        self._engine = InProcessEngine(task)
        self._thread = ThreadPoolExecutor(1, "training")

    @property
    def at_once(self) -> bool:
        """Whether training takes no noticeable time, so that no thread is needed."""
        return self.task.trivial and self.delays is None

    def restore(self, client: int) -> int:
        """Load the saved state of a client, and return the number of its trainings so far."""
        saved = None if self._stored is None else self._stored.load(client)
        if self._ledgers is not None:
            self._ledgers.open(client, 0 if saved is None else saved.trainings)
        if saved is None:
            return 0
        self._states[client] = None if saved.state is None else cloudpickle.dumps(saved.state)
        return saved.trainings

    async def train(self, client: int, order: Train) -> TrainJob:
        """Train without blocking the event loop, and save the client's state before returning.

        If the call is cancelled before the state is being saved, the state does not change.
        """
        if (earlier := self._saving.pop(client, None)) is not None:
            await asyncio.wait([earlier])  # of a training that was cancelled meanwhile
        if self._ledgers is not None:
            await asyncio.get_running_loop().run_in_executor(self._disk, self._book, self._ledgers, client)
        began = time.monotonic()
        evaluate = self._schedule.due(client, began)
        job = TrainJob(client, order.weights, order.rate, order.step, self._states.get(client), order.age, evaluate)
        if self.task.trivial:
            self._do(job)
        else:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._do, job)
        if self.delays is not None:
            await asyncio.sleep(began + self.delays[client] - time.monotonic())
        if self._stored is None:
            self._states[client] = job.new_state
        else:
            save = asyncio.get_running_loop().run_in_executor(self._disk, self._save, self._stored, job)
            self._saving[client] = save
            await asyncio.shield(save)
        return job

    def check_budget(self, client: int) -> None:
        """Raise a ``PrivacyBudgetSpentError`` if the client has spent its privacy budget."""
        cost = self.task.privacy_cost(client)
        if self._ledgers is not None and cost is not None:
            self._ledgers.check(client, cost)

    def booked(self, client: int) -> int:
        """Return the number of trainings in the client's privacy ledger; 0: it has none."""
        return 0 if self._ledgers is None else self._ledgers.ledger(client).booked

    async def raise_ledger(self, client: int, booked: int) -> None:
        """Book trainings until there are as many as a server has heard of."""
        ledgers, cost = self._ledgers, self.task.privacy_cost(client)
        if ledgers is not None and cost is not None:
            await asyncio.get_running_loop().run_in_executor(self._disk, ledgers.raise_to, client, booked, cost)

    def _book(self, ledgers: ClientLedgers, client: int) -> None:
        """Force the privacy cost of a training to disk, before the training begins."""
        cost = self.task.privacy_cost(client)
        assert cost is not None
        ledgers.book(client, cost)

    def close(self) -> None:
        """Wait for a save under way, and release the state folder."""
        self._disk.shutdown()
        if self._stored is not None:
            self._stored.close()

    def _save(self, stored: ClientStates, job: TrainJob) -> None:
        """Save the state of a client, and then use it."""
        state = None if job.new_state is None else pickle.loads(job.new_state)  # pickled in this process
        model = self.task.client_model(job.weights, state) if self.task.personal else None
        stored.save(job.client, job.step + 1, state, model)
        self._states[job.client] = job.new_state

    def _do(self, job: TrainJob) -> None:
        """Train; raise a ``TaskError`` that explains the divergence if the result is not finite."""
        if not is_finite(self._engine.trained(job)):
            raise TaskError(f"the weights are not finite {explain_divergence(job, self.task)}")
