"""Count the honest clients that the update filter quarantines, in simulations of many settings without adversaries.

python -m benchmarks.honest_clients [--first N] [--count N] [--family quadratic|digits|faults]

Setting number N follows from N alone. Exit code 1 if any client was quarantined.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from spyker.algorithms.builtin import ALGORITHMS
from spyker.config.scenario import load
from spyker.engines.engine import InProcessEngine
from spyker.protocol.facts import ClientQuarantined, UpdateClipped, UpdateRejected
from spyker.records import Fact
from spyker.sim.cluster import ClusterSimulation
from spyker.sim.simulate import simulate
from spyker.tasks.registry import resolve, task_spec

FAMILIES = ("quadratic", "digits", "faults")
REGIONS = ("Hongkong", "Paris", "Sydney", "California")
CLIENTS = (1, 2, 3, 4, 5, 6, 8, 12, 16, 25)
PACES: tuple[Any, ...] = (
    {"mean": 150.0, "std": 7.5, "floor": 15.0},
    {"median": 60.0, "ratio": 5.0},
    "uneven",
    "heterogeneous",
)
OPTIMISERS = ("sgd", "sgd", "momentum", "adam")
Fate = Callable[[ClusterSimulation], None]


def choose(random: np.random.Generator, options: Any) -> Any:
    """One of these."""
    return options[int(random.integers(len(options)))]


def setting(number: int, family: str) -> tuple[str, dict[str, Any], Fate | None]:
    """Return task, scenario keys and faults of setting ``number``."""
    random = np.random.default_rng((number, FAMILIES.index(family)))
    regions = REGIONS[: int(random.integers(1, 5))]
    clients = [choose(random, CLIENTS)] * len(regions)
    if random.random() < 0.3:
        clients = [choose(random, CLIENTS) for _ in regions]
    said: dict[str, Any] = {
        "algorithm": list(ALGORITHMS)[number % len(ALGORITHMS)],
        "seed": number,
        "world.regions": list(regions),
        "world.clients": clients,
        "training.delay-ms": choose(random, PACES),
        "training.epochs": int(random.integers(1, 6)),
        "robust.when": "always",
    }
    if family == "faults":
        said["algorithm"] = choose(random, ("spyker", "spyker", "sync-spyker", "stride", "hierfavg", "fedbuff"))
    if family == "digits":
        said |= digits(random)
        return "digits", said, None
    said |= {
        "duration": 20.0,
        "evaluation.interval": 20.0,
        "training.rate": choose(random, (0.01, 0.05, 0.2, 0.5, 0.9, 1.0)),
        "task.dimension": choose(random, (1, 2, 8, 8, 32, 200)),
    }
    if family == "quadratic":
        return "quadratic", said, None
    said |= {"duration": 120.0, "evaluation.interval": 120.0, "spyker.h-inter": 20.0, "spyker.h-intra": 30.0}
    return "quadratic", said, faults(random, said["duration"])


def digits(random: np.random.Generator) -> dict[str, Any]:
    """Return keys of the task digits."""
    optimiser = choose(random, OPTIMISERS)
    rates = {"sgd": (0.02, 0.05, 0.2), "momentum": (0.01, 0.05, 0.1), "adam": (0.001, 0.003, 0.01)}
    return {
        "duration": 8.0,
        "evaluation.interval": 8.0,
        "task.partition": choose(random, ("iid", "dirichlet", "pathological", "pathological")),
        "task.alpha": choose(random, (0.1, 0.5)),
        "task.grouped": bool(random.random() < 0.3),
        "task.images-per-client": choose(random, (6, 12)),
        "training.optimiser": optimiser,
        "training.rate": choose(random, rates[optimiser]),
        "training.kernel": "native" if optimiser == "sgd" else "torch",
    }


def faults(random: np.random.Generator, duration: float) -> Fate:
    """Schedule crashes, restarts from disk or backup, and partitions of regions."""
    at, happens = 3.0, []
    while at < duration - 10:
        happens.append((at, choose(random, ("kill", "kill", "back up", "isolate")), int(random.integers(12))))
        at += float(random.uniform(3.0, 12.0))
    pauses = random.uniform(0.1, 6.0, len(happens))

    def faults(world: ClusterSimulation) -> None:
        for (t, what, which), pause in zip(happens, pauses, strict=True):
            server = which % len(world.places.servers)
            if what == "isolate":
                region = world.places.server_regions[server]
                world.schedule(t, world.isolate, region)
                world.schedule(t + pause, world.rejoin, region)
            elif what == "back up":
                world.schedule(t, world.back_up, server)
            else:
                world.schedule(t, world.crash, server)
                if pause > 4:
                    world.schedule(t + pause / 2, world.restore, server)
                world.schedule(t + pause, world.restart, server)

    return faults


def held(task: str, said: dict[str, Any], faults: Fate | None) -> tuple[Counter[str], int]:
    """Count rejections and quarantines, and applied updates, in one simulation."""
    counts: Counter[str] = Counter()

    def sink(t: float, fact: Fact, queue: int | None) -> None:
        if isinstance(fact, ClientQuarantined):
            counts[f"quarantined, {fact.reason}"] += 1
        elif isinstance(fact, UpdateClipped | UpdateRejected):
            counts[fact.kind] += 1

    scenario = resolve(load(None, said, task=task))
    made = task_spec(scenario).make()
    summary = simulate(scenario, made, InProcessEngine(made), sink, faults=faults)
    return counts, int(summary["updates"])


def main() -> int:
    """Run the settings; print the totals and each setting with a rejection or quarantine."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=80, help="settings of each family")
    parser.add_argument("--family", choices=FAMILIES, action="append")
    arguments = parser.parse_args()
    total: Counter[str] = Counter()
    for family in arguments.family or FAMILIES:
        counted: Counter[str] = Counter()
        began = time.monotonic()
        for number in range(arguments.first, arguments.first + arguments.count):
            task, said, faults = setting(number, family)
            counts, updates = held(task, said, faults)
            counted += counts
            counted["updates"] += updates
            counted["settings"] += 1
            if counts:
                print(family, number, dict(counts), said, flush=True)
            if any(key.startswith("quarantined") for key in counts):
                counted["settings with a quarantine"] += 1
        print(f"{family}: {dict(counted)}, {time.monotonic() - began:.0f} s", flush=True)
        total += counted
    print(f"all: {dict(total)}")
    return 1 if total["settings with a quarantine"] else 0


if __name__ == "__main__":
    sys.exit(main())
