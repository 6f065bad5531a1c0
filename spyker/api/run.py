"""``spyker.run``: one scenario in the emulated world."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from spyker.api.callbacks import Callback, Callbacks
from spyker.api.datasets import data_from, prepare_data
from spyker.api.interrupts import InterruptRequest, interrupts
from spyker.api.output_folders import new_folder, place_for_record
from spyker.api.read_scenario import AlgorithmLike, Source, TaskLike, read_scenario
from spyker.api.result import Run
from spyker.api.run_checks import warn_before
from spyker.config.scenario import Scenario
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
    from_model: str | os.PathLike[str] | None = None,
    model: bool = True,
    workers: int | None = None,
    engine: str = "local",
    ray_address: str | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    progress: bool = True,
    callbacks: Sequence[Callback] = (),
) -> Run:
    """Run a scenario in the emulated world and read its record back.

    What is said:

    - ``scenario``: a TOML file, a dictionary of what would stand in one, or a :class:`Scenario`; default: the paper's
      world.
    - ``clients`` (in all, spread evenly over the regions), ``duration`` (virtual seconds) and ``seed`` are laid over
      it, and so is everything in ``settings``, such as ``{"training.rate": 0.1}``.
    - ``algorithm``: a name, or a class that extends :class:`Server`; default: the scenario's, or Stride.
    - ``task``: a name, a function ``(clients, seed, training, **options)`` that makes one, or a :class:`Task` itself.
    - ``preset``: named settings that hold where nothing else is said, ``paper`` or ``tuned``.
    - ``out``: the folder of the record; by default a new one in ``runs/``. One that exists is refused unless
      ``overwrite`` lets the record in it go, which happens only when everything else is in order.
    - ``from_model``: a safetensors file with the model that everybody starts from, such as the one that another run
      left, in place of the task's own. This is a new run all the same, from time 0.
    - ``model``: whether to leave the models in the record, those of the servers and their mean.
    - ``workers``: training processes, by default one per core, 0 for none; ``engine``: ``local`` or ``ray``, on the
      cluster at ``ray_address`` or on one that is started here.
    - ``data_dir``: a folder with datasets.
    - ``progress``: whether to show how far the run is and, before it begins, what is likely to go wrong.
    - ``callbacks``: functions ``(t, fact)``, or objects with some of ``begin(scenario)``, ``fact(t, fact)`` and
      ``end(run)``. ``True`` from the function or from ``fact`` ends the run early, in good order.

    Ctrl-C ends the run in good order, too, and then raises ``KeyboardInterrupt``. While a run goes on, nobody else may
    write to its folder.
    """
    audience = Callbacks(callbacks)
    given = None if from_model is None else InitialModelFile(Path(from_model))
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
        check_memory([chosen])
        folder = new_folder(f"{chosen.chosen.name}-{short(chosen)}") if out is None else Path(out)
        with place_for_record(folder, overwrite=overwrite) as place, locked(folder):
            prepare_data([chosen], progress=progress)
            made, trainers = start_engine(chosen, workers, engine, ray_address)
            with trainers, interrupts() as stop:
                initial_model = None if given is None else given.fit(layout_of(made))
                if progress:
                    warn_before([chosen], made)
                place.empty()
                done = emulate(
                    chosen,
                    made,
                    trainers,
                    folder,
                    stop,
                    audience,
                    initial_model=initial_model,
                    model=model,
                    progress=progress,
                )
    if stop.interrupted:
        raise Interrupted(f"the run was stopped; its record is in {folder}", done)
    return done


def emulate(
    scenario: Scenario,
    task: Task,
    engine: Engine,
    folder: Path,
    stop: InterruptRequest,
    audience: Callbacks,
    *,
    initial_model: InitialModel | None,
    model: bool,
    progress: bool,
) -> Run:
    """Make one run for whoever watches it."""
    with contextlib.ExitStack() as stack:
        audience.begin(scenario)
        watches = [*audience.watches, FailureLines().fact]
        if progress:
            bar = LiveProgress(scenario.chosen.title, scenario.duration, task.metric.name)
            watches.append(stack.enter_context(bar).fact)
        record_run(scenario, task, engine, folder, watches, stop, initial_model=initial_model, models=model)
    stop.requested = stop.interrupted  # what a callback ended is this run alone
    run = Run(folder)
    audience.end(run)
    return run


def short(scenario: Scenario) -> str:
    """A task's name as part of a folder's: a task of the user's own has the name of its module before it."""
    return re.split(r"[.:]", scenario.task.name)[-1].strip("<>")
