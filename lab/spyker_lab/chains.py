"""Chains of runs: within a chain each run depends on earlier ones; several chains run concurrently.

Finished runs are reused: a restarted chain receives their results and continues from there. A chain must therefore be
a deterministic function of these results.
"""

from __future__ import annotations

import multiprocessing.connection
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar

from spyker.config.scenario import Scenario
from spyker.engines.start_engine import available_cores
from spyker.records import RunRecord
from spyker.sim.clock import StopRequest
from spyker.sweeps.runner import RunWorker, folder_of, is_diverged, is_finished

T = TypeVar("T")
Steps: TypeAlias = Generator[Scenario, RunRecord | None, T]
"""A generator that yields scenarios, receives the run of each (``None`` if it diverged) and returns a result."""


class Chain(Generic[T]):
    """A chain of runs in the folder ``root``, advanced as far as runs are finished."""

    def __init__(self, steps: Steps[T], root: Path) -> None:
        self.steps, self.root = steps, root
        self.made = 0
        """Number of finished runs."""
        self.next: tuple[Path, Scenario] | None = None
        """The next run, or ``None`` at the end of the chain."""
        self.result: T | None = None
        self._advance(None)

    def go_on(self) -> None:
        """Advance the chain after its next run has finished."""
        assert self.next is not None
        self._advance(self._made(self.next[0]))

    def _made(self, folder: Path) -> RunRecord | None:
        self.made += 1
        return RunRecord(folder) if is_finished(folder) else None

    def _advance(self, run: RunRecord | None) -> None:
        try:
            while True:
                scenario = self.steps.send(run)
                folder = folder_of(scenario, self.root)
                if not (is_finished(folder) or is_diverged(folder)):
                    self.next = folder, scenario
                    return
                run = self._made(folder)
        except StopIteration as end:
            self.next, self.result = None, end.value


def run_chains(
    chains: Sequence[Chain[Any]],
    jobs: int | None = None,
    report: Callable[[], None] = lambda: None,
    stop: StopRequest | None = None,
) -> None:
    """Execute some chains, ``jobs`` at a time; ``report`` is called after every run."""
    stop = stop or StopRequest()
    waiting = [chain for chain in chains if chain.next is not None]
    workers: dict[RunWorker, Chain[Any] | None] = {}
    try:
        while (waiting or any(workers.values())) and not stop.requested:
            while waiting and len(workers) < (jobs or available_cores()):
                workers[RunWorker()] = None
            for worker, chain in workers.items():
                if chain is None and waiting:
                    workers[worker] = chain = waiting.pop(0)
                if chain is not None and worker.folder is None:
                    assert chain.next is not None
                    worker.submit(*chain.next)
            by_pipe: dict[Any, RunWorker] = {worker.pipe: worker for worker in workers if worker.folder}
            for pipe in multiprocessing.connection.wait(by_pipe, timeout=1):
                worker, chain = by_pipe[pipe], workers[by_pipe[pipe]]
                worker.receive(lambda _: None)
                if worker.folder is None and chain is not None:
                    chain.go_on()
                    report()
                    workers[worker] = chain if chain.next else None
    finally:
        for worker in workers:
            worker.end()
