"""Audit ``privacy.unit = "example"`` with canaries: what do the updates of one client really disclose?

python -m benchmarks.privacy_audit [--epsilon 1 2 4] [--canaries N] [--seeds N]

One client trains a linear model on the images of ``digits`` and on canaries: examples with an input of their own, so
that each of them alone moves its own weights. A fair coin decides for each canary whether the client has it. The
auditor sees all updates, guesses the coins of the canaries whose weights moved most and least, and computes a lower
bound of ε from the number of right guesses (Steinke, Nasr, Jagielski: Privacy Auditing with One (1) Training Run,
NeurIPS 2023). It holds with 95 % confidence. Each row repeats the audit without noise, while the client still claims
the same ε: the audit must refute that claim.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass

import numpy as np
import torch
from scipy.stats import binom
from torch import Tensor, nn

from spyker.config.privacy_settings import PrivacySettings
from spyker.config.scenario import Training
from spyker.privacy.accounting import Booking, Mechanism, epsilon_of, noise_for
from spyker.tasks.built_in.digits import read
from spyker.tasks.task import TrainingResult
from spyker.tasks.torch_task import TorchTask

CONFIDENCE = 0.95
GUESSED = 0.1  # share of the canaries; fixed before the audit, as a choice afterwards would need a correction
CHARGE = 10.0  # a canary's input; large, so that its gradient is clipped and hardly touches the common bias
SILENT = 1e-9  # noise multiplier of a client that forgets the noise
LABELS = 10


def plausibility(epsilon: float, delta: float, canaries: int, guesses: int, right: int) -> float:
    """Return an upper bound of the probability that so many guesses are right although (ε, δ) holds.

    Under pure ε-DP no guess is right with a probability above e^ε / (1 + e^ε), whatever the other coins were, so that
    their number is at most binomial. With δ, the bad events of all canaries together may move the number up by i with
    a probability of at most 2 · canaries · δ / i, for any i.
    """
    likely = 1 / (1 + math.exp(-epsilon))
    tail = binom.sf(np.arange(right, -1, -1) - 1, guesses, likely)  # P[binomial >= right - i], i = 0, 1, …
    moved = (tail[1:] - tail[0]) / np.arange(1, right + 1)
    return min(1.0, float(tail[0] + 2 * canaries * delta * max(0.0, *moved) if right else tail[0]))


def lower_bound(delta: float, canaries: int, guesses: int, right: int) -> float:
    """Return the smallest ε that is compatible with the right guesses at ``CONFIDENCE``; 0 if all are."""
    low, high = 0.0, 64.0
    if plausibility(low, delta, canaries, guesses, right) >= 1 - CONFIDENCE:
        return 0.0
    while high - low > 1e-4:
        middle = (low + high) / 2
        refuted = plausibility(middle, delta, canaries, guesses, right) < 1 - CONFIDENCE
        low, high = (middle, high) if refuted else (low, middle)
    return low


@dataclass(frozen=True, slots=True)
class Plan:
    """What the audited client does."""

    epsilon: float
    delta: float = 1e-5
    canaries: int = 2000
    images: int = 500
    trainings: int = 5
    batch: int = 256
    noise: float | None = None
    """Noise multiplier; ``None``: computed from ``epsilon``."""


@dataclass(frozen=True, slots=True)
class Audit:
    """The result of one audit."""

    claimed: float
    """ε of the accountant for the noise that the client should have added."""
    shown: float
    """Lower bound of ε."""
    right: float
    """Share of right guesses."""


def audit(plan: Plan, seed: int, *, noise: bool = True) -> Audit:
    """Let a client train, and guess the coins from its updates; without ``noise`` it only claims to add some."""
    coins = np.random.default_rng((seed, 0)).random(plan.canaries) < 0.5
    inputs, targets = examples(plan, coins)
    steps = math.ceil(len(inputs) / plan.batch)
    multiplier = plan.noise or noise_for(plan.epsilon, plan.delta, 1 / steps, steps * plan.trainings)
    claimed = epsilon_of([Booking(Mechanism(multiplier, 1 / steps, steps), plan.trainings)], plan.delta)
    settings = PrivacySettings(
        unit="example", delta=plan.delta, trainings=plan.trainings, noise_multiplier=multiplier if noise else SILENT
    )
    torch.manual_seed(seed)
    model = nn.Linear(inputs.shape[1], LABELS)
    task = TorchTask(model, [(inputs, targets)], None, Training(batch_size=plan.batch), seed=seed)
    task.protect_examples(settings, deployed=False)
    moved = updates(task, plan.trainings)[:, -plan.canaries :]
    labels = np.arange(plan.canaries) % LABELS
    # A canary pulls the weight of its label up and, summed, those of the other labels down by as much.
    scores = moved[labels, np.arange(plan.canaries)] - moved.sum(0) / LABELS
    order = scores.argsort()
    half = max(1, int(plan.canaries * GUESSED / 2))
    right = int((~coins[order[:half]]).sum() + coins[order[-half:]].sum())
    shown = lower_bound(plan.delta, plan.canaries, 2 * half, right)
    return Audit(claimed, shown, right / (2 * half))


def examples(plan: Plan, coins: np.ndarray) -> tuple[Tensor, Tensor]:
    """Return the client's images, each with an empty input per canary, and the canaries that it has."""
    pixels, labels, _ = read()
    images = torch.zeros(plan.images, pixels[0].size + plan.canaries)
    images[:, : pixels[0].size] = torch.from_numpy(pixels[: plan.images] / 16).float().flatten(1)
    own = torch.zeros(plan.canaries, images.shape[1])
    own[:, pixels[0].size :].fill_diagonal_(CHARGE)
    chosen = torch.from_numpy(coins)
    answers = torch.from_numpy(labels[: plan.images]).long()
    return torch.cat([images, own[chosen]]), torch.cat([answers, (torch.arange(plan.canaries) % LABELS)[chosen]])


def updates(task: TorchTask, trainings: int) -> np.ndarray:
    """Let the only client train, each time what it trained before; return the sum of its updates of the weights."""
    weights = received = np.array(task.initial())
    for number in range(trainings):
        result = task.train(0, weights, 0.1, number)
        weights = np.array(result.weights if isinstance(result, TrainingResult) else result)
    moved: np.ndarray = task.layout.parts(weights - received)["weight"]
    return moved


def main() -> None:
    """Audit and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epsilon", nargs="+", type=float, default=[1.0, 2.0, 4.0])
    parser.add_argument("--canaries", type=int, default=2000)
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    print("| accountant's ε | noise | right guesses | lower bound of ε, by seed |\n|---:|---|---:|---:|", flush=True)
    for epsilon in args.epsilon:
        for noise in (True, False):
            found = [audit(Plan(epsilon, canaries=args.canaries), s, noise=noise) for s in range(1, args.seeds + 1)]
            claimed, right = max(a.claimed for a in found), sum(a.right for a in found) / len(found)
            shown = ", ".join(f"{a.shown:.2f}" for a in found)
            print(f"| {claimed:.2f} | {'yes' if noise else '**off**'} | {right:.3f} | {shown} |", flush=True)


if __name__ == "__main__":
    main()
