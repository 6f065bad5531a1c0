"""A training that ran away: what happened, and to whom first."""

from __future__ import annotations

from spyker.engines.divergence import explain_divergence
from spyker.engines.engine import TrainJob
from spyker.errors import DivergenceError
from spyker.tasks.task import Task


def divergence_error(
    server: int, now: float, broken: tuple[float, TrainJob] | None, task: Task | None
) -> DivergenceError:
    """The error for a server's model that is not finite, with the first training that led to such numbers, if any."""
    found = f"the model of server {server} is not finite any more at t = {now:g} s: training diverged. "
    if broken is None:
        return DivergenceError(
            f"{found}What its clients trained was finite: adding it up on the servers was not. Lower training.rate "
            "(--set training.rate=…), or the algorithm's own rate"
        )
    t, job = broken
    return DivergenceError(f"{found}First at client {job.client}, at t = {t:g} s, {explain_divergence(job, task)}")
