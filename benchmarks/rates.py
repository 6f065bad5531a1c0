"""Client updates per second: of Spyker's runs, and of bare PyTorch loops."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

from spyker.config.scenario import load
from spyker.engines.start_engine import start_engine
from spyker.sim.clock import StopRequest
from spyker.sim.simulate import simulate
from spyker.tasks.registry import resolve

CLIENTS = 100


def spyker_rate(overrides: dict[str, Any], workers: int, updates: int, warm_up: int) -> float:
    """Return the updates per second of real time in a run, from update ``warm_up`` to at least ``updates``."""
    # The only evaluation is at the start, before the end of the warm-up.
    base = {"algorithm": "spyker", "duration": 1e6, "evaluation.interval": 1e6}
    scenario = resolve(load(None, base | overrides, clients=CLIENTS))
    task, engine = start_engine(scenario, workers)
    stop, seen, marks = StopRequest(), 0, []

    def sink(t: float, fact: Any, queue: int | None) -> None:
        nonlocal seen
        seen += fact.kind == "update"
        whole = fact.kind == ("round" if scenario.algorithm == "fedavg" else "update")  # rounds count when they end
        if whole and seen >= warm_up and (not marks or seen >= updates):
            marks.append((time.perf_counter(), seen))
            stop.requested = seen >= updates

    with engine:
        simulate(scenario, task, engine, sink, stop)
    (began, first), (ended, last) = marks[0], marks[-1]
    return (last - first) / (ended - began)


def bare_rate(overrides: dict[str, Any], processes: int, updates: int, warm_up: int) -> float:
    """Return the total updates per second of concurrent plain PyTorch loops on the same data."""
    arguments = [json.dumps(overrides), str(updates // processes), str(warm_up // processes)]
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.bare_loop", *arguments], stdout=subprocess.PIPE, stdin=subprocess.PIPE
        )
        for _ in range(processes)
    ]
    for process in started:  # wait until all have loaded their data
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
    for process in started:
        assert process.stdin is not None
        process.stdin.write(b"go\n")
        process.stdin.flush()
    return sum(float(process.communicate()[0]) for process in started)
