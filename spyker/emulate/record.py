"""A run and its record: the one place where an emulated run is written down as it happens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from spyker.config.scenario import Scenario, dump
from spyker.emulate.clock import Stop
from spyker.emulate.run import run
from spyker.learn.engine import Engine
from spyker.learn.given_model import Beginning
from spyker.learn.layout import layout_digest, layout_of
from spyker.learn.registry import with_targets
from spyker.learn.task import Task
from spyker.records import Fact, RecordWriter
from spyker.records.models import Model, model_path, write_model
from spyker.vectors import Vector, average
from spyker.version import __version__

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
    *,
    beginning: Beginning | None = None,
    models: bool = False,
) -> dict[str, Any]:
    """Run a scenario and return its summary. Whatever happens, a record that can be read is left in ``folder``.

    With ``models`` a run that ends in good order, be it early, leaves the models that it led to. Who makes thousands of
    runs for a table has no use for them.
    """
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

    def leave(t: float, left: Sequence[Vector]) -> None:
        try:
            write_models(folder, scenario, task, t, left)
        except OSError as error:
            raise lost(folder, error) from None

    try:
        summary = run(scenario, task, engine, sink, stop, beginning=beginning, leave=leave if models else None)
    finally:
        try:
            writer.close(summary)
        except OSError as error:
            raise lost(folder, error) from None
    return summary


def write_models(folder: Path, scenario: Scenario, task: Task, t: float, models: Sequence[Vector]) -> None:
    """Write each server's model, and their mean, which ``averaged`` in evaluations is the score of."""
    layout, digest = layout_of(task), layout_digest(task).hex()

    def write(server: int | None, weights: Vector) -> None:
        about = {
            "spyker": __version__,
            "algorithm": scenario.algorithm,
            "task": scenario.task.name,
            "seed": str(scenario.seed),
            "time": repr(round(t, 9)),
            "server": f"mean of {len(models)}" if server is None else str(server),
            "layout": digest,
        }
        write_model(model_path(folder, server), Model(layout.parts(weights), about))

    for server, weights in enumerate(models):
        write(server, weights)
    write(None, average(models) if len(models) > 1 else models[0])


def lost(folder: Path, error: OSError) -> RecordLostError:
    """What to say when a record cannot be written any more."""
    return RecordLostError(
        f"{folder} takes no more of the run ({error.strerror}); what facts.jsonl holds can be read. "
        "Make room, or choose another --out"
    )
