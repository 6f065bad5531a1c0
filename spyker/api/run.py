"""``spyker.run``: one run in the emulator."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from spyker.api.callbacks import Callback, Callbacks
from spyker.api.datasets import data_from, prepare_data
from spyker.api.interrupts import InterruptRequest, interrupts
from spyker.api.output_folders import new_folder, place_for_record
from spyker.api.read_scenario import AlgorithmLike, Source, TaskLike, read_scenario
from spyker.api.result import Run
from spyker.api.run_checks import warn_before
from spyker.config.scenario import STOP, Scenario
from spyker.engines.engine import Engine
from spyker.engines.start_engine import start_engine
from spyker.errors import Interrupted
from spyker.plots.failure_lines import FailureLines
from spyker.plots.run_progress import LiveProgress
from spyker.records.lock import locked
from spyker.sim.recording import record_run
from spyker.tasks.initial_model import InitialModel, InitialModelFile
from spyker.tasks.layout import layout_of
from spyker.tasks.memory_check import check_memory
from spyker.tasks.task import Task


def run(
    scenario: Source = None,
    *,
    algorithm: AlgorithmLike | None = None,
    task: TaskLike | None = None,
    clients: int | None = None,
    duration: float | None = None,
    seed: int | None = None,
    preset: str = "paper",
    settings: Mapping[str, object] | None = None,
    out: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    initial_model: str | os.PathLike[str] | None = None,
    model: bool = True,
    workers: int | None = None,
    engine: str = "local",
    ray_address: str | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    progress: bool = True,
    callbacks: Sequence[Callback] = (),
) -> Run:
    """Run a scenario in the emulator and return its results.

    Args:
        scenario: a TOML file, a dictionary with the same content, or a :class:`Scenario`; default: the paper's world.
        algorithm: a name, or a subclass of :class:`Server`; default: the scenario's, or Stride.
        task: a name, a factory ``(clients, seed, training, **options)``, or a :class:`Task`.
        clients: total number of clients, spread evenly over the regions.
        duration: length of the run in virtual seconds.
        seed: seed of all random numbers.
        preset: named defaults for keys that are not set: ``paper`` or ``tuned``.
        settings: further keys, such as ``{"training.rate": 0.1}``.
        out: folder of the run record; default: a new folder in ``runs/``. An existing record is an error unless
            ``overwrite`` is set.
        overwrite: whether to replace the record in ``out``, after all other checks have passed.
        initial_model: a safetensors file with the initial model, such as another run's ``model.safetensors``;
            default: the task's initial model. The run starts at time 0.
        model: whether to write the models of the servers and their average to the record.
        workers: number of training processes; default: one per core; 0: train in this process.
        engine: ``local`` or ``ray``.
        ray_address: address of a Ray cluster; default: a cluster started on this machine.
        data_dir: a folder with datasets.
        progress: whether to show the progress and, before the run, warnings.
        callbacks: functions ``(t, fact)``, or objects with some of ``begin(scenario)``, ``fact(t, fact)`` and
            ``end(run)``. ``True`` from the function or from ``fact`` stops the run.

    Returns:
        The results of the run.

    Raises:
        UsageError: an argument or a key of the scenario is invalid.
        RecordError: the folder ``out`` cannot be used, for example because another process writes to it.
        KeyboardInterrupt: Ctrl-C stopped the run; its record is complete up to then.

    """
    with data_from(data_dir):
        chosen = read_scenario(
            scenario,
            algorithm=algorithm,
            task=task,
            clients=clients,
            duration=duration,
            seed=seed,
            preset=preset,
            settings=settings,
        )
        folder = new_folder(f"{chosen.chosen.name}-{short(chosen)}") if out is None else Path(out)
        options = RunOptions(overwrite, initial_model, model, workers, engine, ray_address, progress, callbacks)
        runs, interrupted = run_in_turn([{folder: chosen}], folder, options)
    if interrupted:
        raise Interrupted(f"the run was stopped; its record is in {folder}", runs[folder])
    return runs[folder]


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The arguments of :func:`run` and :func:`~spyker.compare` that do not concern the scenario."""

    overwrite: bool
    initial_model: str | os.PathLike[str] | None
    model: bool
    workers: int | None
    engine: str
    ray_address: str | None
    progress: bool
    callbacks: Sequence[Callback]


def run_in_turn(
    groups: Sequence[Mapping[Path, Scenario]], out: Path, options: RunOptions
) -> tuple[dict[Path, Run], bool]:
    """Run scenarios, one after the other.

    Everything is checked and prepared before the content of ``out`` is replaced.

    Args:
        groups: scenarios by the folder of their record, ``out`` or one in it. Those of a group have the same task.
        out: folder of all records.
        options: the further arguments of the caller.

    Returns:
        The runs by folder, and whether Ctrl-C stopped them early.

    """
    audience, progress = Callbacks(options.callbacks), options.progress
    given = InitialModelFile.read(options.initial_model)
    first = list(groups[0].values())
    check_memory(first[:1])
    done: dict[Path, Run] = {}
    with place_for_record(out, overwrite=options.overwrite) as place, locked(out):
        prepare_data(first, progress=progress)
        for group in groups:
            task, engine = start_engine(
                next(iter(group.values())), options.workers, options.engine, options.ray_address
            )
            with engine, interrupts() as stop:
                fitted = None if given is None else given.fit(layout_of(task))
                if not done:
                    if progress:
                        warn_before(first, task)
                    place.empty()
                for folder, scenario in group.items():
                    if done and stop.interrupted:
                        break
                    with contextlib.nullcontext() if folder == out else locked(folder):
                        done[folder] = emulate(scenario, task, engine, folder, stop, audience, fitted, options)
            if stop.interrupted:
                break
    return done, stop.interrupted


def emulate(
    scenario: Scenario,
    task: Task,
    engine: Engine,
    folder: Path,
    stop: InterruptRequest,
    audience: Callbacks,
    initial_model: InitialModel | None,
    options: RunOptions,
) -> Run:
    """Run a scenario with callbacks and progress bar."""
    with contextlib.ExitStack() as stack:
        audience.begin(scenario)
        watches = [*audience.watches, FailureLines(stop=scenario.training.on_client_error == STOP).fact]
        if options.progress:
            bar = LiveProgress(scenario.chosen.title, scenario.duration, task.metric.name)
            watches.append(stack.enter_context(bar).fact)
        record_run(scenario, task, engine, folder, watches, stop, initial_model=initial_model, models=options.model)
    stop.requested = stop.interrupted  # a callback stops only the current run
    run = Run(folder)
    audience.end(run)
    return run


def short(scenario: Scenario) -> str:
    """Return a task's name without its module, for a folder name."""
    return re.split(r"[.:]", scenario.task.name)[-1].strip("<>")
