"""``spyker.run``: one scenario in the emulated world."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from spyker.api.callbacks import Callback, Callbacks
from spyker.api.choose_trackers import choose_trackers, facts_up_to
from spyker.api.datasets import data_from, prepare_data
from spyker.api.estimate import foresee
from spyker.api.interrupts import InterruptRequest, interrupts
from spyker.api.output_folders import OutputFolder, new_folder, place_for_record
from spyker.api.read_scenario import AlgorithmLike, Source, TaskLike, read_scenario
from spyker.api.result import Run
from spyker.api.save_interval import SaveInterval
from spyker.config.scenario import Scenario
from spyker.engines.engine import Engine
from spyker.engines.start_engine import start_engine
from spyker.errors import Interrupted, UsageError
from spyker.plots.failure_lines import FailureLines
from spyker.plots.run_progress import LiveProgress
from spyker.plots.trackers.forwarding import TrackerForwarder
from spyker.records import SCENARIO
from spyker.records.lock import check_unlocked, locked
from spyker.records.resume_point import ResumePoint, read_resume_point
from spyker.sim.autosave import Autosave
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
    resume: bool = False,
    workers: int | None = None,
    engine: str = "local",
    ray_address: str | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    progress: bool = True,
    callbacks: Sequence[Callback] = (),
    follow: Sequence[str] = (),
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
    - ``initial_model``: a safetensors file with the model that everybody starts from, such as the one that another run
      left, in place of the task's own. This is a new run all the same, from time 0.
    - ``model``: whether to leave the models in the record, those of the servers and their mean.
    - ``resume``: go on with the interrupted run in ``out``, whose scenario need not be said again. Its record will have
      the bytes of one that was never interrupted.
    - ``workers``: training processes, by default one per core, 0 for none; ``engine``: ``local`` or ``ray``, on the
      cluster at ``ray_address`` or on one that is started here.
    - ``data_dir``: a folder with datasets.
    - ``progress``: whether to show how far the run is and, before a long one, about what it will take.
    - ``callbacks``: functions ``(t, fact)``, or objects with some of ``begin(scenario)``, ``fact(t, fact)`` and
      ``end(run)``. ``True`` from the function or from ``fact`` ends the run early, in good order.
    - ``follow``: who else is told the run as it goes on: ``tensorboard=DIR``, ``mlflow=URI`` (or a folder),
      ``wandb=PROJECT``. One that fails later is left out, and the run goes on.

    Ctrl-C ends the run in good order, too, and then raises ``KeyboardInterrupt``. A run that was ended early can be
    resumed, and one that was killed from where it was last saved, which happens every half minute. While it goes on,
    nobody else may write to its folder.
    """
    audience = Callbacks(callbacks)
    trackers = choose_trackers(follow)
    given = None if initial_model is None else InitialModelFile(Path(initial_model))
    save = find_save(out, overwrite=overwrite, given=given) if resume else None
    if resume and scenario is None:
        scenario = Path(out or "", SCENARIO)
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
        with OutputFolder(folder) if resume else place_for_record(folder, overwrite=overwrite) as place, locked(folder):
            prepare_data([chosen], progress=progress)
            saves = Autosave(folder, chosen, SaveInterval(), save)  # digests what training may change
            made, trainers = start_engine(chosen, workers, engine, ray_address)
            with trainers, interrupts() as stop:
                fitted = None if given is None else given.fit(layout_of(made))
                if progress and save is None:
                    foresee([chosen], made, trainers)
                if save is None:
                    place.empty()
                else:
                    saves.check(chosen, made)
                done = emulate(
                    chosen,
                    made,
                    trainers,
                    folder,
                    stop,
                    audience,
                    TrackerForwarder(trackers, folder, folder.resolve().name),
                    initial_model=fitted,
                    model=model,
                    saves=saves,
                    progress=progress,
                )
    if stop.interrupted:
        raise Interrupted(f"the run was stopped; its record is in {folder}", done)
    return done


def find_save(out: str | os.PathLike[str] | None, *, overwrite: bool, given: InitialModelFile | None) -> ResumePoint:
    """What the run in a folder goes on from, if nothing else is asked for."""
    for wrong, problem, remedy in (
        (out is None, "does not say which run", "Add --out with its folder"),
        (overwrite, "goes on with a record that --overwrite would replace", "Leave one of them out"),
        (given is not None, "goes on with the models it has", "Leave out --initial-model"),
    ):
        if wrong:
            raise UsageError("--resume", problem, remedy)
    check_unlocked(Path(out or ""))
    return read_resume_point(Path(out or ""))


def emulate(
    scenario: Scenario,
    task: Task,
    engine: Engine,
    folder: Path,
    stop: InterruptRequest,
    audience: Callbacks,
    following: TrackerForwarder,
    *,
    initial_model: InitialModel | None,
    model: bool,
    saves: Autosave | None = None,
    progress: bool,
) -> Run:
    """Make one run for whoever watches it."""
    with contextlib.ExitStack() as stack:
        audience.begin(scenario)
        watches = [*audience.watches, *stack.enter_context(following).watches]
        replayed = [*audience.from_the_beginning, *following.watches]
        if saves is not None and saves.save is not None and replayed:
            for t, fact in facts_up_to(folder, saves.save.facts):
                for tell in replayed:
                    tell(t, fact)
        watches.append(FailureLines().fact)
        if progress:
            bar = LiveProgress(scenario.chosen.title, scenario.duration, task.metric.name)
            watches.append(stack.enter_context(bar).fact)
        summary = record_run(
            scenario, task, engine, folder, watches, stop, initial_model=initial_model, models=model, saves=saves
        )
        following.end(summary)
    stop.requested = stop.interrupted  # what a callback ended is this run alone
    run = Run(folder)
    audience.end(run)
    return run


def short(scenario: Scenario) -> str:
    """A task's name as part of a folder's: a task of the user's own has the name of its module before it."""
    return re.split(r"[.:]", scenario.task.name)[-1].strip("<>")
