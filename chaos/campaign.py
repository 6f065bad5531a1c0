"""Campaigns: run many seeds on all cores until one fails, and shrink its plan to few faults."""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import NamedTuple

from chaos.checks import Checks, ViolationError
from chaos.fault_plan import FULL_RECOVERY, Fault, FaultPlan, fault_plan
from chaos.faulty_cluster import make_cluster
from spyker.sim.clock import StopRequest


class SeedVerdict(NamedTuple):
    """The outcome of a plan."""

    seed: int
    violation: str
    """The violated invariant; empty: none."""
    events: int
    epochs: int


def run_plan(chosen: FaultPlan) -> SeedVerdict:
    """Run a plan with all checkers."""
    checks = Checks()
    world = make_cluster(chosen, checks.fact)
    checks.begin(world, chosen.end - chosen.recovery_seconds, masked=chosen.masked)
    for fault in chosen.faults:
        world.schedule(fault.t, world.inject, fault)
    world.schedule(chosen.last + 0.5, world.end_faults)
    if chosen.full is not None:
        world.schedule(chosen.end, checks.fill_a_disk, chosen.full, chosen.until - FULL_RECOVERY)
    violation = ""
    try:
        with checks.masks.watching() if chosen.masked else nullcontext():
            world.start()
            world.clock.run(StopRequest())
            checks.end()
    except ViolationError as error:
        violation = str(error)
    except Exception as error:
        violation = f"at {world.clock.now:.2f} s: {type(error).__name__}: {error}"
    return SeedVerdict(chosen.seed, violation, world.clock.happened, max(checks.epochs, default=0))


def run_seed(seed: int) -> SeedVerdict:
    """Run the plan of a seed."""
    return run_plan(fault_plan(seed))


def campaign(seeds: Iterable[int], workers: int, seconds: float | None = None) -> Iterator[SeedVerdict]:
    """Yield the verdicts on seeds in their order, until one fails or the time is over."""
    began = time.monotonic()

    def timed_out() -> bool:
        return seconds is not None and time.monotonic() - began > seconds

    if workers == 1:
        for seed in seeds:
            verdict = run_seed(seed)
            yield verdict
            if verdict.violation or timed_out():
                return
        return
    ignore_ctrl_c = (signal.SIGINT, signal.SIG_IGN)  # the parent handles it
    with multiprocessing.get_context("spawn").Pool(workers, signal.signal, ignore_ctrl_c) as pool:
        for verdict in pool.imap(run_seed, seeds, chunksize=4):
            yield verdict
            if verdict.violation or timed_out():
                pool.terminate()
                return


def shrink(failing: FaultPlan, fails: Callable[[FaultPlan], bool] | None = None) -> FaultPlan:
    """Return the plan without the faults that are not needed for a violation, the same or another."""
    fails = fails or (lambda candidate: bool(run_plan(candidate).violation))
    faults: Sequence[Fault] = failing.faults
    size = max(1, len(faults) // 2)
    while faults:
        for at in range(0, len(faults), size):
            fewer = (*faults[:at], *faults[at + size :])
            if fails(replace(failing, faults=fewer)):
                faults = fewer
                break
        else:
            if size == 1:
                break
            size //= 2
        size = max(1, min(size, len(faults)))
    return replace(failing, faults=tuple(faults))
