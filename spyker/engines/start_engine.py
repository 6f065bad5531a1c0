"""Creation of a scenario's task and engine."""

from __future__ import annotations

import os
from dataclasses import replace

from spyker.config.scenario import Scenario
from spyker.config.sections import show
from spyker.engines.engine import Engine, InProcessEngine
from spyker.engines.worker_processes import ProcessPoolEngine
from spyker.errors import UsageError
from spyker.extras import require
from spyker.tasks.by_value import ByValue
from spyker.tasks.memory_check import check_memory
from spyker.tasks.registry import TaskSpec, task_spec
from spyker.tasks.task import Task

ENGINES = ("local", "ray")


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def start_engine(
    scenario: Scenario, workers: int | None = None, engine: str = "local", ray_address: str | None = None
) -> tuple[Task, Engine]:
    """Create the task of a resolved scenario and start its engine.

    Args:
        scenario: the resolved scenario.
        workers: number of workers; default: one per core; 0: train in this process.
        engine: ``local`` or ``ray``.
        ray_address: address of a Ray cluster; default: a cluster started on this machine.

    Returns:
        The task and the engine. A task with trivial training always runs in this process.

    """
    check(workers, engine, ray_address)
    check_memory([scenario])
    spec = task_spec(scenario)
    task = spec.make()
    count = available_cores() if workers is None else workers
    if task.trivial or count == 0:
        return task, InProcessEngine(task)
    if task.by_value:
        spec = replace(spec, choice=replace(spec.choice, given=ByValue(task)))
    if engine == "ray":
        return task, start_ray(spec, workers, ray_address)
    return task, ProcessPoolEngine(spec, task.initial().size, count)


def check(workers: int | None, engine: str, ray_address: str | None) -> None:
    """Check the options of the engine."""
    if workers is not None and workers < 0:
        raise UsageError(
            "--workers", f"{workers} is not allowed", "Give 0 to train in this process, or the number of workers"
        )
    if engine not in ENGINES:
        raise UsageError("--engine", f"{show(engine)} is not allowed", f"Choose one of {', '.join(ENGINES)}")
    if engine == "ray" and workers == 0:
        raise UsageError(
            "--workers", "0 is not allowed with --engine ray", "Give at least 1, or leave it out for all CPUs"
        )
    if engine != "ray" and ray_address is not None:
        raise UsageError("--ray-address", f"is not allowed with the engine {show(engine)}", "Add --engine ray")


def start_ray(spec: TaskSpec, workers: int | None, address: str | None) -> Engine:
    """Start workers on a Ray cluster."""
    require("--engine ray", "ray")
    from spyker.engines.ray_engine import RayEngine  # slow to import

    return RayEngine(spec, workers, address)
