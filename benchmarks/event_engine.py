"""Events per second of the emulated world, without any training cost, for growing numbers of clients.

The task is ``quadratic``; a server's mix costs next to no virtual time, so that no queue grows without end, and every
client goes on with its next training. Each size runs in a process of its own, so that memory is that size's peak.
Prints a table and the cost per event relative to the smallest world.

    python benchmarks/event_engine.py [CLIENTS ...]
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time

from spyker.config.scenario import load
from spyker.emulate.run import run
from spyker.learn.registry import resolve
from spyker.learn.start import start

UPDATES = 200_000  # about; the virtual duration is chosen accordingly


def measure(clients: int) -> dict[str, float]:
    duration = max(0.5, 0.16 * (1 + UPDATES / clients))
    overrides = {
        "duration": duration,
        "world.mix-ms": 1e-6,
        "evaluation.interval": duration,
        "training.delay-ms": {"mean": 150.0, "std": 30.0},
    }
    scenario = resolve(load(None, overrides, task="quadratic", clients=clients))
    task, engine = start(scenario)
    began = time.perf_counter()
    summary = run(scenario, task, engine, lambda t, fact, queue: None)
    seconds = time.perf_counter() - began
    return {
        "clients": clients,
        "events": summary["events"],
        "seconds": seconds,
        "events_per_second": summary["events"] / seconds,
        "updates_per_second": summary["updates"] / seconds,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def main() -> None:
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(measure(int(sys.argv[2]))))
        return
    sizes = [int(word) for word in sys.argv[1:]] or [10_000, 100_000]
    print(f"{'clients':>10} {'events/s':>10} {'updates/s':>10} {'peak MB':>8} {'cost per event':>15}")
    first = None
    for clients in sizes:
        command = [sys.executable, __file__, "--one", str(clients)]
        result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        first = first or result["events_per_second"]
        print(
            f"{clients:>10,} {result['events_per_second']:>10,.0f} {result['updates_per_second']:>10,.0f} "
            f"{result['peak_mb']:>8,.0f} {first / result['events_per_second']:>14.2f}×",
            flush=True,
        )


if __name__ == "__main__":
    main()
