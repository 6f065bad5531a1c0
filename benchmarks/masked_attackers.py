"""Measure what robust filtering loses under secure aggregation: one client in ten is malicious, with and without masks.

python -m benchmarks.masked_attackers [--algorithm NAME] [--seeds N]

Forty clients in two regions learn ``digits``; four of them send noise of the largest norm that is allowed, or 1e30.
The table has the final accuracy, as the mean over servers, seeds and the last quarter of the run, and in brackets the
difference from the run without attack and masks, in points; and when the last of the four was quarantined.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any, NamedTuple

from spyker.config.scenario import load
from spyker.engines.engine import InProcessEngine
from spyker.protocol.facts import ClientQuarantined
from spyker.records import Evaluated, Fact
from spyker.sim.adversaries import Adversaries
from spyker.sim.simulate import simulate
from spyker.tasks.registry import resolve, task_spec

ALGORITHMS = ("stride", "fedavg", "hierfavg", "fedbuff")
ATTACKS: dict[str, dict[str, Any] | None] = {
    "none": None,
    "noise": {"kind": "noise", "strength": 4.9, "share": 0.1},
    "1e30": {"kind": "huge", "share": 0.1},
}
SETTINGS: dict[str, Any] = {
    "duration": 20.0,
    "world.regions": ["Paris", "Sydney"],
    "world.clients": [20, 20],
    "task.partition": "pathological",
    "training.rate": 0.2,
    "training.kernel": "native",
    "evaluation.interval": 1.0,
    "robust.when": "always",
}
MASKS: dict[str, Any] = {"privacy.masking": True, "privacy.helpers": [0, 1]}


class Outcome(NamedTuple):
    """The result of a run."""

    accuracy: float
    caught: list[float]
    """When malicious clients were quarantined first."""
    innocent: int
    """Quarantines of other clients."""


def run(algorithm: str, attack: str, seed: int, *, masks: bool) -> Outcome:
    """Run one simulation."""
    said = SETTINGS | {"algorithm": algorithm, "seed": seed} | (MASKS if masks else {})
    if ATTACKS[attack] is not None:
        said["world.adversaries"] = ATTACKS[attack]
    scenario = resolve(load(None, said, task="digits"))
    adversaries = Adversaries.of(scenario)
    hostile = frozenset() if adversaries is None else adversaries.clients
    scores: list[float] = []
    caught: dict[int, float] = {}
    innocent: list[int] = []

    def sink(t: float, fact: Fact, queue: int | None) -> None:
        if isinstance(fact, Evaluated) and t >= 0.75 * scenario.duration:
            scores.append(fact.mean)
        elif isinstance(fact, ClientQuarantined) and fact.client in hostile:
            caught.setdefault(fact.client, t)
        elif isinstance(fact, ClientQuarantined):
            innocent.append(fact.client)

    task = task_spec(scenario).make()
    simulate(scenario, task, InProcessEngine(task), sink)
    return Outcome(statistics.mean(scores), sorted(caught.values()), len(innocent))


def main() -> None:
    """Print the table, row by row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--algorithm", choices=ALGORITHMS, action="append")
    parser.add_argument("--seeds", type=int, default=1, help="default: 1")
    arguments = parser.parse_args()
    began = time.monotonic()
    print("| algorithm | masks |", " | ".join(ATTACKS), "| 1e30: quarantined | others quarantined |")
    print("| --- | --- |", " | ".join("---:" for _ in ATTACKS), "| ---: | ---: |", flush=True)
    for algorithm in arguments.algorithm or ALGORITHMS:
        honest = None
        for masks in (False, True):
            cells, last, innocent = [], "", 0
            for attack in ATTACKS:
                found = [run(algorithm, attack, seed, masks=masks) for seed in range(1, arguments.seeds + 1)]
                accuracy = statistics.mean(each.accuracy for each in found)
                honest = accuracy if honest is None else honest
                cells.append(f"{accuracy:.3f} ({100 * (accuracy - honest):+.1f})")
                innocent += sum(each.innocent for each in found)
                if attack == "1e30":
                    caught = [t for each in found for t in each.caught]
                    last = f"{len(caught)} of {4 * len(found)}" + (f", after {max(caught):.1f} s" if caught else "")
            named = "yes" if masks else "no"
            print(f"| {algorithm} | {named} |", " | ".join(cells), f"| {last} | {innocent} |", flush=True)
    print(f"\n{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
