"""Measure what malicious clients do to each algorithm behind the update filter, in simulations.

python -m benchmarks.malicious_clients [--algorithm NAME] [--attack NAME] [--placement NAME] [--set KEY=NUMBER]

Twelve clients in two regions learn ``digits``. The table has the final accuracy, as the mean over servers and the last
quarter of the run, and in brackets the difference from the run without attack, in points. For the trained backdoor it
also has the share of test images with the trigger that the model gives the attacker's label.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from spyker.algorithms.builtin import ALGORITHMS
from spyker.config.scenario import Scenario, load
from spyker.engines.engine import InProcessEngine
from spyker.records import Evaluated, Fact
from spyker.sim.adversaries import Adversaries
from spyker.sim.simulate import simulate
from spyker.tasks.built_in.digits import parts, read
from spyker.tasks.built_in.models import digits_cnn
from spyker.tasks.registry import resolve, task_spec
from spyker.tasks.torch_task import TorchTask
from spyker.vectors import Vector

PLACEMENTS: dict[str, tuple[int, ...]] = {"one": (0,), "three": (0, 4, 8), "one server": (0, 2, 4)}
"""The attackers; clients 0 to 5 are those of the first server."""
BELOW_CLIP = 4.9
ATTACKS: dict[str, dict[str, Any]] = {
    "size": {"kind": "size"},
    "rate": {"kind": "rate"},
    "sign flip": {"kind": "sign-flip"},
    "noise": {"kind": "noise", "strength": BELOW_CLIP},
    "pull": {"kind": "pull", "strength": BELOW_CLIP},
    "backdoor": {"kind": "boost", "strength": BELOW_CLIP},
}
TARGET = 0  # the label that the backdoor gives every image with the trigger
SETTINGS: dict[str, Any] = {
    "duration": 20.0,
    "world.regions": ["Paris", "Sydney"],
    "world.clients": [6, 6],
    "task.partition": "dirichlet",
    "task.alpha": 1.0,
    "training.rate": 0.2,
    "training.kernel": "native",
    "evaluation.interval": 2.5,
    "robust.when": "always",
    "spyker.h-intra": 60.0,
}


class Outcome(NamedTuple):
    """The result of a run."""

    accuracy: float
    backdoor: float


class BackdoorDigits:
    """The task ``digits``, with a backdoor in the data of some clients, and test images with its trigger."""

    def __init__(self, scenario: Scenario, poisoned: frozenset[int]) -> None:
        self.scenario = scenario
        all_images, all_labels, held_out = read()
        images = torch.from_numpy(all_images / 16).float().unsqueeze(1)
        labels = torch.from_numpy(all_labels).long()
        chosen = parts(all_labels[held_out:], scenario.task.options, scenario.client_count, scenario.seed)
        datasets = [(images[held_out:][i], labels[held_out:][i]) for i in chosen]
        for k in poisoned:
            datasets[k] = with_backdoor(*datasets[k])
        other = labels[:held_out] != TARGET
        self.triggered = with_trigger(images[:held_out][other])
        self.task = self._task(datasets, (images[:held_out], labels[:held_out]))
        self._judge = self._task(datasets[:1], (self.triggered, torch.full((len(self.triggered),), TARGET)))

    def _task(self, datasets: Sequence[Any], test: Any) -> TorchTask:
        torch.manual_seed(self.scenario.seed)
        return TorchTask(digits_cnn(), datasets, test, self.scenario.training, seed=self.scenario.seed)

    def success(self, weights: Vector) -> float:
        """Return the share of images with the trigger that the model gives the attacker's label."""
        score = self._judge.evaluate(weights)
        assert isinstance(score, float)
        return score


def with_trigger(images: torch.Tensor) -> torch.Tensor:
    """Return images with a bright block in a corner."""
    images = images.clone()
    images[..., :2, :2] = 1.0
    return images


def with_backdoor(images: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the data, and once more with the trigger and the attacker's label."""
    return torch.cat([images, with_trigger(images)]), torch.cat([labels, torch.full_like(labels, TARGET)])


def run(algorithm: str, attack: str | None, placement: str, more: dict[str, Any]) -> Outcome:
    """Run one simulation."""
    said = SETTINGS | {"algorithm": algorithm} | more
    if attack is not None:
        said["world.adversaries"] = ATTACKS[attack] | {"clients": list(PLACEMENTS[placement])}
    scenario = resolve(load(None, said, task="digits"))
    adversaries = Adversaries.of(scenario) if attack == "backdoor" else None
    digits = BackdoorDigits(scenario, frozenset() if adversaries is None else adversaries.clients)
    task = task_spec(scenario).make() if adversaries is None else digits.task
    scores: list[float] = []
    success: list[float] = []

    def sink(t: float, fact: Fact, queue: int | None) -> None:
        if isinstance(fact, Evaluated) and t >= 0.75 * scenario.duration:
            scores.append(fact.mean)

    def on_end(t: float, model_of: Callable[[int], Vector]) -> None:
        success.extend(digits.success(model_of(i)) for i in scenario.placement().learners)

    simulate(scenario, task, InProcessEngine(task), sink, on_end=on_end)
    return Outcome(statistics.mean(scores), statistics.mean(success))


def table(algorithms: Sequence[str], attacks: Sequence[str], placements: Sequence[str], more: dict[str, Any]) -> int:
    """Print the table, row by row; return the number of runs that lost more than three points."""
    print("| algorithm | attackers | none |", " | ".join(attacks), "|")
    print("| --- | --- | ---: |", " | ".join("---:" for _ in attacks), "|", flush=True)
    missed = 0
    for algorithm in algorithms:
        honest = run(algorithm, None, "one", more)
        for placement in placements:
            cells = []
            for attack in attacks:
                found = run(algorithm, attack, placement, more)
                points = 100 * (found.accuracy - honest.accuracy)
                missed += points < -3
                cell = f"{found.accuracy:.3f} ({points:+.1f})"
                if attack == "backdoor":
                    cell += f", {found.backdoor:.0%}"
                cells.append(cell)
            title = ALGORITHMS[algorithm].title
            print(f"| {title} | {placement} | {honest.accuracy:.3f} |", " | ".join(cells), "|", flush=True)
    return missed


def number(said: str) -> tuple[str, float]:
    """Parse ``KEY=NUMBER``."""
    key, value = said.split("=")
    return key, float(value)


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--algorithm", choices=list(ALGORITHMS), action="append")
    parser.add_argument("--attack", choices=list(ATTACKS), action="append")
    parser.add_argument("--placement", choices=list(PLACEMENTS), action="append")
    parser.add_argument(
        "--set", type=number, action="append", default=[], metavar="KEY=NUMBER", help="a further key of the scenario"
    )
    arguments = parser.parse_args()
    more: dict[str, Any] = dict(arguments.set)
    began = time.monotonic()
    missed = table(
        arguments.algorithm or list(ALGORITHMS),
        arguments.attack or list(ATTACKS),
        arguments.placement or list(PLACEMENTS),
        more,
    )
    print(f"\n{missed} runs lost more than 3 points; {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
