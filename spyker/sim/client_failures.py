"""Failed clients. The run excludes them and continues, unless all clients fail."""

from __future__ import annotations

from dataclasses import dataclass

from spyker.engines.divergence import explain_divergence
from spyker.engines.engine import TrainJob
from spyker.errors import ClientTrainingError, DivergenceError
from spyker.tasks.task import Task

STOP_REMEDY = 'Correct the task or its data, or go on without clients that fail: training.on-client-error = "continue"'
EXPLAINED = 3  # number of failures that are explained, since an explanation repeats the training


@dataclass(frozen=True, slots=True)
class ClientFailure:
    """An excluded client."""

    client: int
    time: float
    reason: str
    error: str
    """Error message if the run stops: for an exception, its traceback."""
    diverged: bool
    """Whether the training returned weights that are not finite."""
    spent: bool = False
    """Whether the client left because it had spent its privacy budget, which is no error."""


class ClientFailures:
    """The excluded clients of a run, in order."""

    def __init__(self, clients: int, task: Task, *, stop: bool) -> None:
        """With ``stop``, the first failure ends the run."""
        self.clients, self.task, self.stop = clients, task, stop
        self.by_client: dict[int, ClientFailure] = {}
        self.trained = False
        """Whether any training succeeded."""

    def raised(self, now: float, job: TrainJob, error: ClientTrainingError) -> ClientFailure:
        """Exclude a client whose training raised an exception or returned an invalid result."""
        return self._add(ClientFailure(job.client, now, error.reason, str(error), diverged=False))

    def diverged(self, now: float, job: TrainJob, before: tuple[float, TrainJob] | None) -> ClientFailure:
        """Exclude a client whose training returned weights that are not finite.

        ``before`` is an earlier training of this kind whose result was sent to a server.
        """
        cause = explain_divergence(job, self.task if len(self.by_client) < EXPLAINED else None)
        error = f"training diverged. First at client {job.client}, at t = {now:g} s, {cause}"
        if before is not None and not self.by_client:
            t, first = before
            first_cause = explain_divergence(first, self.task)
            error = f"training diverged. First at client {first.client}, at t = {t:g} s, {first_cause}"
        reason = f"its weights are not finite any more {cause}"
        return self._add(ClientFailure(job.client, now, reason, error, diverged=True))

    def has_spent(self, client: int, trainings: int) -> bool:
        """Return whether a client has spent its privacy budget with this many trainings."""
        most = self.task.most_trainings(client)
        return most is not None and trainings >= most

    def spent(self, now: float, client: int, trainings: int) -> ClientFailure:
        """Exclude a client that has spent its privacy budget."""
        reason = f"its privacy budget is spent: {trainings:,} trainings"
        return self._add(ClientFailure(client, now, reason, reason, diverged=False, spent=True))

    def _add(self, failure: ClientFailure) -> ClientFailure:
        self.by_client[failure.client] = failure
        return failure

    def check(self, *, ended: bool = False) -> None:
        """Raise the first error if all clients have failed, or if the run ended without a successful training.

        A client that has spent its privacy budget has not failed.
        """
        failed = [failure for failure in self.by_client.values() if not failure.spent]
        all_failed = len(self.by_client) == self.clients or (ended and not self.trained)
        if failed and (self.stop or all_failed):
            first = failed[0]
            raise DivergenceError(first.error) if first.diverged else ClientTrainingError(first.error, first.reason)
