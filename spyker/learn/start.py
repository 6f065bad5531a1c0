"""From a scenario to a task and an engine that runs it."""

from __future__ import annotations

import os

from spyker.config.scenario import Scenario
from spyker.config.sections import ScenarioError
from spyker.learn.engine import Engine, Here
from spyker.learn.registry import recipe
from spyker.learn.task import Task
from spyker.learn.workers import Workers


def available_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def start(scenario: Scenario, workers: int | None = None) -> tuple[Task, Engine]:
    """Make the task of a resolved scenario and start its workers: one per core, so many, or 0 for none.

    A task whose training costs next to nothing runs in this process in any case.
    """
    if workers is not None and workers < 0:
        raise ScenarioError("--workers", f"is {workers}", "Give 0 to train in this process, or the number of workers")
    plan = recipe(scenario)
    task = plan.make()
    count = available_cores() if workers is None else workers
    if task.trivial or count == 0:
        return task, Here(task)
    return task, Workers(plan, task.initial().size, count)
