"""Concurrent execution of many scenarios; finished runs are reused.

The folder of a run is named by a digest of everything the run depends on. A scenario requested several times is
therefore run once, and a finished run is never repeated. Each run has its own process.
"""

from __future__ import annotations

import contextlib
import hashlib
import multiprocessing.connection
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from spyker.config.algorithms import algorithm_code
from spyker.config.scenario import Scenario, dump
from spyker.engines.engine import InProcessEngine
from spyker.engines.process_settings import allow_processes, keep_memory
from spyker.engines.spawn import spawn
from spyker.engines.start_engine import available_cores
from spyker.errors import DivergenceError, RunFailedError, UsageError
from spyker.plots.progress_bar import ProgressBar
from spyker.records import Fact, RunRecord, is_record
from spyker.records.lock import lock
from spyker.records.run_facts import FORMAT
from spyker.sim.clock import StopRequest
from spyker.sim.recording import record_run
from spyker.tasks.registry import code_of, task_spec
from spyker.tasks.task import Task
from spyker.version import __version__

REPORT_SECONDS = 0.5
LOCK = ".lock"


@dataclass(frozen=True, slots=True)
class RunProgress:
    """Progress of the run in ``folder``: ``done`` virtual seconds, and once ``finished``."""

    folder: Path
    done: float
    finished: bool


def essence(scenario: Scenario) -> Scenario:
    """Return the scenario without the parameters of other algorithms."""
    section = scenario.chosen.section
    return replace(scenario, algorithms={section: scenario.algorithms[section]})


def folder_of(scenario: Scenario, root: Path) -> Path:
    """Return the folder of a scenario's run, named by a digest of everything the run depends on."""
    code = code_of(scenario.task) + algorithm_code(scenario.algorithm)
    depends = f"{__version__} {FORMAT}\n{dump(essence(scenario))}{code}"
    digest = hashlib.sha256(depends.encode()).hexdigest()[:12]
    return root / f"{scenario.chosen.name}-{scenario.task.name.rpartition(':')[2]}-{digest}"


def is_finished(folder: Path) -> bool:
    """Return whether a run has finished; its summary is written last, atomically."""
    return (folder / "summary.json").exists() and bool((RunRecord(folder).summary or {}).get("finished"))


def run_all(
    scenarios: Iterable[Scenario],
    root: Path,
    jobs: int | None = None,
    report: Callable[[RunProgress], None] = lambda _: None,
    stop: StopRequest | None = None,
    *,
    in_order: bool = False,
) -> list[RunRecord | None]:
    """Run the scenarios that have no finished run yet in ``root``.

    Args:
        scenarios: the scenarios.
        root: folder of the run records.
        jobs: number of concurrent runs; default: one per core.
        report: callback for progress.
        stop: request to stop early.
        in_order: start runs in the given order; otherwise the longest first, which keeps all cores busy.

    Returns:
        A record for each scenario; ``None`` if the training diverged or the run was stopped.

    """
    wanted = list(scenarios)
    stop = stop or StopRequest()
    missing: dict[Path, Scenario] = {}
    for scenario in wanted:
        folder = folder_of(scenario, root)
        if is_finished(folder):
            report(RunProgress(folder, scenario.duration, finished=True))
        elif folder not in missing and not is_diverged(folder):
            missing[folder] = scenario
    waiting = list(missing.items())
    if not in_order:
        waiting.sort(key=lambda item: -expected_cost(item[1]))
    workers: list[RunWorker] = []
    try:
        while (waiting or any(worker.folder for worker in workers)) and not stop.requested:
            while waiting and len(workers) < min(jobs or available_cores(), len(missing)):
                workers.append(RunWorker())
            for worker in workers:
                if worker.folder is None and waiting:
                    worker.submit(*waiting.pop(0))
            by_pipe: dict[Any, RunWorker] = {worker.pipe: worker for worker in workers if worker.folder}
            for pipe in multiprocessing.connection.wait(by_pipe, timeout=1):
                by_pipe[pipe].receive(report)
    finally:
        for worker in workers:
            worker.end()
    return [run_of(scenario, root) for scenario in wanted]


def run_of(scenario: Scenario, root: Path) -> RunRecord | None:
    """Return the finished run of a scenario, or ``None``."""
    folder = folder_of(scenario, root)
    return RunRecord(folder) if is_finished(folder) else None


def ended(scenario: Scenario, root: Path) -> bool:
    """Return whether the run of a scenario has finished or diverged."""
    folder = folder_of(scenario, root)
    return is_finished(folder) or is_diverged(folder)


def expected_cost(scenario: Scenario) -> float:
    """Estimate the relative cost of a run by its number of trainings."""
    return scenario.duration * scenario.client_count * scenario.training.epochs


def is_diverged(folder: Path) -> bool:
    """Return whether a run diverged; it is not repeated, because it would diverge again."""
    return (folder / "diverged.txt").exists()


class RunWorker:
    """A process that executes one run after the other."""

    def __init__(self) -> None:
        self.process, self.pipe = spawn(_work)
        self.folder: Path | None = None
        self.scenario: Scenario | None = None

    def submit(self, folder: Path, scenario: Scenario) -> None:
        """Start a run in a folder; remains of an interrupted run are deleted."""
        if folder.exists():
            shutil.rmtree(folder)
        self.folder, self.scenario = folder, scenario
        self.pipe.send((str(folder), scenario))

    def receive(self, report: Callable[[RunProgress], None]) -> None:
        """Receive one message of the process."""
        assert self.folder is not None
        assert self.scenario is not None
        try:
            message = self.pipe.recv()
        except (EOFError, OSError):
            self.process.join(5)
            raise RunFailedError(
                f"the process that ran {self.folder} ended (exit code {self.process.exitcode}); finished runs are "
                "kept. If memory ran out, use fewer --jobs"
            ) from None
        if isinstance(message, str):
            raise RunFailedError(f"{self.folder}: {message}")
        finished = message is None
        report(RunProgress(self.folder, self.scenario.duration if finished else message, finished=finished))
        if finished:
            self.folder = self.scenario = None

    def end(self) -> None:
        """Terminate the process."""
        self.pipe.close()
        self.process.terminate()
        self.process.join()


def _work(pipe: Connection) -> None:
    """Execute runs in the process. It ends at the next report after its parent has ended."""
    allow_processes()
    keep_memory()
    made: tuple[object, Task] | None = None  # the last task, reused if the next run has the same
    while True:
        try:
            folder, scenario = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            plan = task_spec(scenario)
            if made is None or made[0] != plan:
                made = plan, plan.make()
            _run(Path(folder), scenario, made[1], pipe)
            pipe.send(None)
        except ConnectionError:
            return
        except Exception as error:  # reported by the parent
            pipe.send(f"{type(error).__name__}: {error}")


def _run(place: Path, scenario: Scenario, task: Task, pipe: Connection) -> None:
    """Execute a run in a temporary folder and rename it at the end.

    The temporary name is unique, because a process may briefly outlive its parent while the sweep is resumed.
    """
    folder, reported = place.with_name(f".{place.name}-{os.getpid()}"), 0.0

    def report(t: float, fact: Fact) -> None:
        nonlocal reported
        now = time.monotonic()
        if now - reported > REPORT_SECONDS:
            reported = now
            pipe.send(t)

    try:
        record_run(scenario, task, InProcessEngine(task), folder, [report])
    except DivergenceError as error:
        (folder / "diverged.txt").write_text(f"{error}\n", encoding="utf-8")
    folder.rename(place)


def check_folder(out: Path, *, resume: bool) -> None:
    """Raise a ``UsageError`` unless the folder is empty, or holds runs and ``resume`` is set."""
    if out.exists() and not out.is_dir():
        raise UsageError("--out", f"{out} is a file", "Choose another folder")
    if out.exists() and any(out.iterdir()):
        if not resume:
            raise UsageError("--out", f"{out} exists already", "Add --resume to continue it, or choose another folder")
        runs = out / "runs"
        if not runs.is_dir() or not all(is_record(child) for child in runs.iterdir() if child.name[0] != "."):
            raise UsageError("--out", f"{out} has no runs to continue", "Choose another folder")


@contextlib.contextmanager
def locked_folder(root: Path) -> Iterator[None]:
    """Lock a folder of runs, so that two commands do not write into it concurrently."""
    root.mkdir(parents=True, exist_ok=True)
    try:
        held = lock(root / LOCK, required=False)
    except BlockingIOError:
        raise UsageError(
            "--out", f"{root.parent} is in use by another command", "Wait for it, or choose another folder"
        ) from None
    with held:
        for leftover in root.glob(".*/"):  # interrupted runs
            shutil.rmtree(leftover)
        yield


def with_seeds(scenario: Scenario, seeds: int) -> Sequence[Scenario]:
    """Return the scenario with ``seeds`` consecutive seeds, starting with its own."""
    return [replace(scenario, seed=scenario.seed + i) for i in range(seeds)]


def run_watched(
    title: str,
    scenarios: Sequence[Scenario],
    root: Path,
    jobs: int | None,
    stop: StopRequest,
    *,
    progress: bool = True,
    in_order: bool = False,
) -> list[RunRecord | None]:
    """Run scenarios with a progress bar, weighted by expected cost."""
    plans = {folder_of(scenario, root): scenario for scenario in scenarios}
    finished = {folder for folder in plans if is_finished(folder)}
    work = {folder: expected_cost(scenario) for folder, scenario in plans.items() if folder not in finished}
    shares = dict.fromkeys(work, 0.0)
    with ProgressBar(title, sum(work.values())) if progress else contextlib.nullcontext() as bar:

        def report(run: RunProgress) -> None:
            if run.folder in work:
                shares[run.folder] = work[run.folder] * min(1.0, run.done / plans[run.folder].duration)
            if run.finished:
                finished.add(run.folder)
            if bar is not None and bar.due():
                bar.show(sum(shares.values()), f"{len(finished)} of {len(plans)} runs")

        return run_all(scenarios, root, jobs, report, stop, in_order=in_order)
