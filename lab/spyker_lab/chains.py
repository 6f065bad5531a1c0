"""Runs that depend on those before them: each chain is one after the other, several chains are side by side.

Like single runs, those of a chain are made once and for all: a chain that begins anew is told what finished runs found,
in no time, and goes on from there. So it must decide by what it is told alone.
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
"""Asks for one run after the other, is given each, or ``None`` if its training diverged, and returns what it found."""


class Chain(Generic[T]):
    """A chain of runs in the folder ``root``, as far as they are finished."""

    def __init__(self, steps: Steps[T], root: Path) -> None:
        self.steps, self.root = steps, root
        self.made = 0
        """How many of its runs there are."""
        self.next: tuple[Path, Scenario] | None = None
        """The run that has to be made; none when the chain has ended."""
        self.result: T | None = None
        self._advance(None)

    def go_on(self) -> None:
        """The next run was made: see what has to be made after it."""
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
    """Make all runs of some chains, ``jobs`` chains at a time; ``report`` is called after every run."""
    stop = stop or StopRequest()
    waiting = [chain for chain in chains if chain.next is not None]
    hands: dict[RunWorker, Chain[Any] | None] = {}
    try:
        while (waiting or any(hands.values())) and not stop.requested:
            while waiting and len(hands) < (jobs or available_cores()):
                hands[RunWorker()] = None
            for hand, chain in hands.items():
                if chain is None and waiting:
                    hands[hand] = chain = waiting.pop(0)
                if chain is not None and hand.folder is None:
                    assert chain.next is not None
                    hand.give(*chain.next)
            by_pipe: dict[Any, RunWorker] = {hand.pipe: hand for hand in hands if hand.folder}
            for pipe in multiprocessing.connection.wait(by_pipe, timeout=1):
                hand, chain = by_pipe[pipe], hands[by_pipe[pipe]]
                hand.listen(lambda _: None)
                if hand.folder is None and chain is not None:
                    chain.go_on()
                    report()
                    hands[hand] = chain if chain.next else None
    finally:
        for hand in hands:
            hand.end()
