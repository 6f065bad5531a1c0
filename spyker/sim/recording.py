"""Simulation of a scenario with a run record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from spyker.config.scenario import Scenario, dump
from spyker.engines.engine import Engine
from spyker.errors import RecordWriteError
from spyker.records import Fact, RecordWriter
from spyker.sim.clock import StopRequest
from spyker.sim.simulate import simulate
from spyker.tasks.final_models import write_models
from spyker.tasks.initial_model import InitialModel
from spyker.tasks.layout import layout_digest, layout_of
from spyker.tasks.registry import with_task_defaults
from spyker.tasks.task import Task
from spyker.vectors import Vector

Watch: TypeAlias = Callable[[float, Fact], object]
"""Called with the time and the fact after each fact is written. ``True`` stops the run."""


def record_run(
    scenario: Scenario,
    task: Task,
    engine: Engine,
    folder: Path,
    watches: Sequence[Watch] = (),
    stop: StopRequest | None = None,
    *,
    initial_model: InitialModel | None = None,
    models: bool = False,
) -> dict[str, Any]:
    """Run a scenario and write its record, which is readable even if the run fails.

    Args:
        scenario: the resolved scenario.
        task: its task.
        engine: executes trainings and evaluations.
        folder: folder of the run record.
        watches: called with every fact.
        stop: request to stop early.
        initial_model: the initial model; default: the task's.
        models: write the final models; not if the run fails.

    Returns:
        The summary.

    Raises:
        RecordWriteError: the record cannot be written.

    """
    stop = stop or StopRequest()
    writer, summary = RecordWriter(folder, dump(with_task_defaults(scenario, task))), None

    def sink(t: float, fact: Fact, queue: int | None) -> None:
        try:
            writer.write(t, fact, queue)
        except OSError as error:
            raise record_write_error(folder, error) from None
        for watch in watches:
            if watch(t, fact) is True:
                stop.requested = True

    def save_models(t: float, model_of: Callable[[int], Vector]) -> None:
        try:
            learners, digest = scenario.placement().learners, layout_digest(task).hex()
            write_models(folder, scenario, layout_of(task), digest, t, learners, model_of)
        except OSError as error:
            raise record_write_error(folder, error) from None

    try:
        summary = simulate(
            scenario,
            task,
            engine,
            sink,
            stop,
            initial_model=initial_model,
            on_end=save_models if models else None,
        )
    finally:
        try:
            writer.close(summary)
        except OSError as error:
            raise record_write_error(folder, error) from None
    return summary


def record_write_error(folder: Path, error: OSError) -> RecordWriteError:
    """Return the error for a record that cannot be written."""
    return RecordWriteError(
        f"{folder}: cannot write run record ({error.strerror}); the facts written so far are readable. "
        "Free disk space, or choose another --out"
    )
