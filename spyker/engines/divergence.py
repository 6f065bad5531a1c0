"""Explanation of a training whose result is not finite."""

from __future__ import annotations

import numpy as np

from spyker.engines.engine import TrainJob
from spyker.tasks.checked_task import CheckedTask
from spyker.tasks.task import Task
from spyker.vectors import length


def explain_divergence(job: TrainJob, task: Task | None) -> str:
    """Describe the training and the cause. The task repeats the training to find it."""
    with np.errstate(over="ignore"):
        norm = length(job.weights)
    which = f"in its training number {job.step} (from 0) at the rate {job.rate:g}, of a model whose norm was {norm:.4g}"
    cause = "" if task is None else CheckedTask(task).explain(job.client, job.weights, job.rate, job.step, job.state)
    return f"{which}: {cause}" if cause else f"{which}. Lower training.rate (--set training.rate=…)"
