"""A run and its record: the one place where an emulated run is written down as it happens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from spyker.config.scenario import Scenario, dump
from spyker.emulate.clock import Stop
from spyker.emulate.run import run
from spyker.learn.engine import Engine
from spyker.learn.registry import with_targets
from spyker.learn.task import Task
from spyker.records import Fact, RecordWriter

Watch: TypeAlias = Callable[[float, Fact], object]
"""Is told every fact and its time, once it is written. ``True`` ends the run."""


class RecordLostError(RuntimeError):
    """The disk takes no more of a record; says which and why."""


def record(
    scenario: Scenario,
    task: Task,
    engine: Engine,
    folder: Path,
    watches: Sequence[Watch] = (),
    stop: Stop | None = None,
) -> dict[str, Any]:
    """Run a scenario and return its summary. Whatever happens, a record that can be read is left in ``folder``."""
    stop = stop or Stop()
    writer, summary = RecordWriter(folder, dump(with_targets(scenario, task.metric))), None

    def sink(t: float, fact: Fact, queue: int | None) -> None:
        try:
            writer.write(t, fact, queue)
        except OSError as error:
            raise lost(folder, error) from None
        for tell in watches:
            if tell(t, fact) is True:
                stop.requested = True

    try:
        summary = run(scenario, task, engine, sink, stop)
    finally:
        try:
            writer.close(summary)
        except OSError as error:
            raise lost(folder, error) from None
    return summary


def lost(folder: Path, error: OSError) -> RecordLostError:
    """What to say when a record cannot be written any more."""
    return RecordLostError(
        f"{folder} takes no more of the run ({error.strerror}); what facts.jsonl holds can be read. "
        "Make room, or choose another --out"
    )
