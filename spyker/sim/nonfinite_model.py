"""The error for a diverged model."""

from __future__ import annotations

from spyker.engines.divergence import explain_divergence
from spyker.engines.engine import TrainJob
from spyker.errors import DivergenceError
from spyker.tasks.task import Task


def divergence_error(
    server: int, now: float, broken: tuple[float, TrainJob] | None, task: Task | None
) -> DivergenceError:
    """Return the error for a server's model that is not finite, with the first diverged training, if any."""
    found = f"the model of server {server} is not finite any more at t = {now:g} s: training diverged. "
    if broken is None:
        return DivergenceError(
            f"{found}Its clients' updates were finite; the aggregation was not. Lower training.rate "
            "(--set training.rate=…), or the algorithm's own rate"
        )
    t, job = broken
    return DivergenceError(f"{found}First at client {job.client}, at t = {t:g} s, {explain_divergence(job, task)}")
