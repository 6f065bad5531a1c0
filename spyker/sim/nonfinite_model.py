"""A training that ran away: what happened, and to whom first."""

from __future__ import annotations

from spyker.engines.divergence import ran_away
from spyker.engines.engine import TrainJob
from spyker.tasks.task import Task


class DivergedError(RuntimeError):
    """A model stopped being a finite vector: the training ran away."""


def diverged(server: int, now: float, broken: tuple[float, TrainJob] | None, task: Task | None) -> DivergedError:
    """The error for a server's model that is not finite, with the first training that led to such numbers, if any."""
    found = f"the model of server {server} is not finite any more at t = {now:g} s: training diverged. "
    if broken is None:
        return DivergedError(
            f"{found}What its clients trained was finite: adding it up on the servers was not. Lower training.rate "
            "(--set training.rate=…), or the algorithm's own rate"
        )
    t, job = broken
    return DivergedError(f"{found}First at client {job.client}, at t = {t:g} s, {ran_away(job, task)}")
