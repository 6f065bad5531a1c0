"""Runs many scenarios, side by side, each once and for all.

A run's folder is named after a digest of what the run depends on. So a scenario that several experiments ask for is
run once, and one that has finished, in this call or before a kill, is never run again. Each run has one process to
itself: that keeps all cores busy without any run waiting for another, and results do not depend on it.
"""

from __future__ import annotations

import contextlib
import hashlib
import multiprocessing
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
from spyker.engines.engine import InProcessEngine, allow_processes, keep_memory
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
    """How far the run in ``folder`` is: ``done`` of its duration, in virtual seconds; ``finished`` comes once."""

    folder: Path
    done: float
    finished: bool


def essence(scenario: Scenario) -> Scenario:
    """The scenario without the parameters of algorithms that do not run."""
    section = scenario.chosen.section
    return replace(scenario, algorithms={section: scenario.algorithms[section]})


def folder_of(scenario: Scenario, root: Path) -> Path:
    """Where the run of a scenario belongs."""
    code = code_of(scenario.task) + algorithm_code(scenario.algorithm)
    depends = f"{__version__} {FORMAT}\n{dump(essence(scenario))}{code}"
    digest = hashlib.sha256(depends.encode()).hexdigest()[:12]
    return root / f"{scenario.chosen.name}-{scenario.task.name.rpartition(':')[2]}-{digest}"


def is_finished(folder: Path) -> bool:
    """Whether a run got to its end. The summary is written last, in one step."""
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
    """Run what has not been run yet, ``jobs`` at a time; one run per scenario, in their order.

    The longest are run first, so that no core is idle at the end, unless those that come first are to be done first.
    ``None`` stands for a run whose training diverged, and for those that a ``stop`` kept from ending.
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
    hands: list[RunWorker] = []
    try:
        while (waiting or any(hand.folder for hand in hands)) and not stop.requested:
            while waiting and len(hands) < min(jobs or available_cores(), len(missing)):
                hands.append(RunWorker())
            for hand in hands:
                if hand.folder is None and waiting:
                    hand.give(*waiting.pop(0))
            by_pipe: dict[Any, RunWorker] = {hand.pipe: hand for hand in hands if hand.folder}
            for pipe in multiprocessing.connection.wait(by_pipe, timeout=1):
                by_pipe[pipe].listen(report)
    finally:
        for hand in hands:
            hand.end()
    return [run_of(scenario, root) for scenario in wanted]


def run_of(scenario: Scenario, root: Path) -> RunRecord | None:
    """The finished run of a scenario."""
    folder = folder_of(scenario, root)
    return RunRecord(folder) if is_finished(folder) else None


def ended(scenario: Scenario, root: Path) -> bool:
    """Whether there is nothing left to run of a scenario."""
    folder = folder_of(scenario, root)
    return is_finished(folder) or is_diverged(folder)


def expected_cost(scenario: Scenario) -> float:
    """Which of two runs will take longer, roughly: by the number of trainings."""
    return scenario.duration * scenario.client_count * scenario.training.epochs


def is_diverged(folder: Path) -> bool:
    """Whether a run ended because its training diverged. It would do so again."""
    return (folder / "diverged.txt").exists()


class RunWorker:
    """A process that makes one run after the other."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs,), daemon=True)
        spawn(self.process)
        theirs.close()
        self.folder: Path | None = None
        self.scenario: Scenario | None = None

    def give(self, folder: Path, scenario: Scenario) -> None:
        """Have a run made in a folder; what an interrupted one left there goes."""
        if folder.exists():
            shutil.rmtree(folder)
        self.folder, self.scenario = folder, scenario
        self.pipe.send((str(folder), scenario))

    def listen(self, report: Callable[[RunProgress], None]) -> None:
        """Take one piece of news."""
        assert self.folder is not None
        assert self.scenario is not None
        try:
            news = self.pipe.recv()
        except (EOFError, OSError):
            self.process.join(5)
            raise RunFailedError(
                f"the process that ran {self.folder} ended (exit code {self.process.exitcode}); finished runs are "
                "kept. If memory ran out, use fewer --jobs"
            ) from None
        if isinstance(news, str):
            raise RunFailedError(f"{self.folder}: {news}")
        report(RunProgress(self.folder, self.scenario.duration if news is None else news, finished=news is None))
        if news is None:
            self.folder = self.scenario = None

    def end(self) -> None:
        """Stop, also in the middle of a run."""
        self.pipe.close()
        self.process.terminate()
        self.process.join()


def _work(pipe: Connection) -> None:
    """The process's side. A parent that is gone ends it at the next report."""
    allow_processes()
    keep_memory()
    made: tuple[object, Task] | None = None  # the last task, for runs that differ in their algorithm alone
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
        except Exception as error:  # the parent says so
            pipe.send(f"{type(error).__name__}: {error}")


def _run(place: Path, scenario: Scenario, task: Task, pipe: Connection) -> None:
    """Make a run under a name of this process's own, and rename it when it is done: a process that outlives its parent
    for a moment does not get in the way of whoever resumes.
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
    """Go on in a folder that has runs only when asked to."""
    if out.exists() and not out.is_dir():
        raise UsageError("--out", f"{out} is a file", "Choose another")
    if out.exists() and any(out.iterdir()):
        if not resume:
            raise UsageError("--out", f"{out} exists already", "Add --resume to go on there, or choose another")
        runs = out / "runs"
        if not runs.is_dir() or not all(is_record(child) for child in runs.iterdir() if child.name[0] != "."):
            raise UsageError("--out", f"{out} holds no runs to go on with", "Choose another")


@contextlib.contextmanager
def locked_folder(root: Path) -> Iterator[None]:
    """Have a folder of runs to oneself: two commands at once would write into each other's runs."""
    root.mkdir(parents=True, exist_ok=True)
    try:
        held = lock(root / LOCK, required=False)
    except BlockingIOError:
        raise UsageError(
            "--out", f"{root.parent} is in use by another command", "Wait for it, or choose another folder"
        ) from None
    with held:
        for leftover in root.glob(".*/"):  # of runs that a kill interrupted
            shutil.rmtree(leftover)
        yield


def with_seeds(scenario: Scenario, seeds: int) -> Sequence[Scenario]:
    """The scenario with so many seeds, counted from its own."""
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
    """Run scenarios and show how far they are, by the expected cost of those that are still to be run."""
    plans = {folder_of(scenario, root): scenario for scenario in scenarios}
    finished = {folder for folder in plans if is_finished(folder)}
    work = {folder: expected_cost(scenario) for folder, scenario in plans.items() if folder not in finished}
    shares = dict.fromkeys(work, 0.0)
    with ProgressBar(title, sum(work.values())) if progress else contextlib.nullcontext() as bar:

        def report(news: RunProgress) -> None:
            if news.folder in work:
                shares[news.folder] = work[news.folder] * min(1.0, news.done / plans[news.folder].duration)
            if news.finished:
                finished.add(news.folder)
            if bar is not None and bar.due():
                bar.show(sum(shares.values()), f"{len(finished)} of {len(plans)} runs")

        return run_all(scenarios, root, jobs, report, stop, in_order=in_order)
