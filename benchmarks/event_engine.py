"""Events per second of the emulated world, without any training cost, for growing numbers of clients.

The task is ``quadratic`` with eight parameters; a server's mix costs next to no virtual time, so that no queue grows
without end, and every client goes on with its next training. Each size runs in a process of its own, so that the memory
is that size's peak. The cost per event, once the world stands, is compared with that of the smallest world.
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from unittest import mock

from benchmarks.measure import Result
from spyker.config.scenario import load
from spyker.engines.start_engine import start_engine
from spyker.sim.clock import Clock, StopRequest
from spyker.sim.simulate import simulate
from spyker.tasks.registry import resolve

CLIENTS = (10_000, 100_000, 1_000_000)
SERVERS = 4
SCALE = (1_000_000, 100)  # clients, servers
UPDATES = 300_000  # at least; the virtual duration is chosen accordingly
TIMES = 1


def measure() -> list[Result]:
    runs: dict[int, list[dict[str, float]]] = {clients: [] for clients in CLIENTS}
    for _ in range(TIMES):
        for clients in CLIENTS:
            runs[clients].append(in_a_process(clients, SERVERS))
    costs = {clients: statistics.median(r["microseconds_per_event"] for r in rs) for clients, rs in runs.items()}
    first = costs[CLIENTS[0]]
    results = [
        Result(f"cost per event, {n:,} clients / {CLIENTS[0]:,}", costs[n] / first, 1.5, at_most=True, details=rs[-1])
        for n, rs in runs.items()
    ]
    scale = in_a_process(*SCALE)
    name = f"cost per event, {SCALE[0]:,} clients on {SCALE[1]} servers / {CLIENTS[0]:,} on {SERVERS}"
    return [*results, Result(name, scale["microseconds_per_event"] / first, None, details=scale)]


def in_a_process(clients: int, servers: int) -> dict[str, float]:
    """Measure one size in a new process."""
    command = [sys.executable, "-m", "benchmarks.event_engine", str(clients), str(servers)]
    measured: dict[str, float] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return measured


def one(clients: int, servers: int) -> dict[str, float]:
    """Measure one size, in this process."""
    duration = 0.1 + 0.155 * max(1, UPDATES / clients)
    overrides = {
        "algorithm": "spyker",
        "duration": duration,
        "world.regions": [f"region {i}" for i in range(servers)],
        "world.latency-ms": [[1.0 if i == j else 150.0 for j in range(servers)] for i in range(servers)],
        "world.mix-ms": 1e-6,
        "evaluation.interval": duration,
        "training.delay-ms": {"mean": 150.0, "std": 30.0},
    }
    scenario = resolve(load(None, overrides, task="quadratic", clients=clients))
    task, engine = start_engine(scenario)
    spent = []
    run_clock = Clock.run

    def timed(
        clock: Clock, stop: StopRequest
    ) -> bool:  # without the time it takes to build a world of a million clients
        began = time.perf_counter()
        try:
            return run_clock(clock, stop)
        finally:
            spent.append(time.perf_counter() - began)

    with mock.patch.object(Clock, "run", timed):
        summary = simulate(scenario, task, engine, lambda t, fact, queue: None)
    (seconds,) = spent
    return {
        "clients": clients,
        "servers": servers,
        "events": summary["events"],
        "updates": summary["updates"],
        "seconds": seconds,
        "events_per_second": summary["events"] / seconds,
        "microseconds_per_event": 1e6 * seconds / summary["events"],
        "peak_mb": peak_mb(),
    }


def peak_mb() -> float:
    """Return the peak memory of this process; getrusage would include that of the process it was forked from."""
    status = Path("/proc/self/status")
    if status.exists():
        return int(status.read_text().partition("VmHWM:")[2].split()[0]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    print(json.dumps(one(int(sys.argv[1]), int(sys.argv[2]))))
