"""A run and its record: the one place where an emulated run is written down as it happens."""

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
"""Is told every fact and its time, once it is written. ``True`` ends the run."""


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
    """Run a scenario and return its summary. Whatever happens, a record that can be read is left in ``folder``.

    With ``models`` a run that ends in good order, be it early, leaves the models that it led to. Who makes thousands of
    runs for a table has no use for them.
    """
    stop = stop or StopRequest()
    writer, summary = RecordWriter(folder, dump(with_task_defaults(scenario, task))), None

    def sink(t: float, fact: Fact, queue: int | None) -> None:
        try:
            writer.write(t, fact, queue)
        except OSError as error:
            raise record_write_error(folder, error) from None
        for tell in watches:
            if tell(t, fact) is True:
                stop.requested = True

    def leave(t: float, left: Sequence[Vector]) -> None:
        try:
            by_server = dict(zip(scenario.placement().learners, left, strict=True))
            write_models(folder, scenario, layout_of(task), layout_digest(task).hex(), t, by_server)
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
            leave=leave if models else None,
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
        f"{folder}: cannot write run record ({error.strerror}); what facts.jsonl holds can be read. "
        "Free disk space, or choose another --out"
    )
