"""The share of the machine's training speed that Spyker achieves.

Client updates per second of a Spyker run on MNIST (100 clients with 600 images each, batches of 32, one epoch) over
those of bare PyTorch loops in as many processes as Spyker has workers: the same model, data, batch size and layout.
"""

from __future__ import annotations

from benchmarks.measure import Result, in_turn
from benchmarks.rates import bare_rate, spyker_rate
from spyker.engines.start_engine import available_cores

MNIST = {"task.name": "mnist", "task.partition": "iid", "task.images-per-client": 600}
UPDATES, WARM_UP, TIMES = 260, 60, 3


def measure() -> list[Result]:
    workers = available_cores()
    spyker, bare = in_turn(
        lambda: spyker_rate(MNIST, workers, UPDATES, WARM_UP),
        lambda: bare_rate(MNIST, workers, UPDATES, WARM_UP),
        TIMES,
    )
    details = {"spyker_updates_per_s": spyker, "bare_updates_per_s": bare, "workers": float(workers)}
    return [Result("engine efficiency: Spyker / bare PyTorch", spyker / bare, 0.92, details=details)]
