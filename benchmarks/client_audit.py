"""Audit ``privacy.unit = "client"`` with canaries: what do a server's models really disclose about its clients?

python -m benchmarks.client_audit [--epsilon 1 2 4] [--canaries N] [--seeds N] [--algorithms stride fedavg]

Every client is a canary with a weight of its own. A fair coin decides whether it always sends an update of the
clipping norm along this weight, or zeros. The auditor sees the final model, guesses the coins of those that moved
most and least, and computes a lower bound of ε from the number of right guesses, as ``benchmarks.privacy_audit`` does.
The server is the one of runs and deployments. Each row repeats the audit without noise, while the server claims the
same ε: the audit must refute that claim.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import numpy as np

from benchmarks.privacy_audit import GUESSED, SILENT, Audit, lower_bound
from spyker.algorithms.builtin import ALGORITHMS
from spyker.privacy.accounting import Booking, Mechanism, epsilon_of
from spyker.privacy.client_noise import ClientPrivacy
from spyker.privacy.gaussian_accounting import gaussian_noise
from spyker.protocol.messages import Model, ToClient, Update
from spyker.protocol.server import Setup
from spyker.sim.sim_noise import sim_noise

CLIP = 1.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What the audited server and its clients do."""

    epsilon: float
    algorithm: str = "stride"
    delta: float = 1e-6
    canaries: int = 2000
    rounds: int = 5


def audit(plan: Plan, seed: int, *, noise: bool = True) -> Audit:
    """Run rounds, and guess the coins from the final model; without ``noise`` the server only claims to add some."""
    count = plan.canaries
    multiplier = gaussian_noise(plan.epsilon, plan.delta, plan.rounds)
    claimed = epsilon_of([Booking(Mechanism(multiplier, 1.0, 1), plan.rounds)], plan.delta)
    added = multiplier if noise else SILENT
    privacy = ClientPrivacy(CLIP, added, plan.rounds, {0: count}, plan.delta, sim_noise(seed))
    initial, algorithm = np.ones(count, np.float32), ALGORITHMS[plan.algorithm]
    setup = Setup(1, count, initial, 0.1, algorithm.Parameters(), seed, client_privacy=privacy)
    server = algorithm.create(0, setup, dict.fromkeys(range(count), 1))
    coins = np.random.default_rng((seed, 1)).random(count) < 0.5
    tasks = {a.client: a.message for a in server.start() if isinstance(a, ToClient)}
    for _ in range(plan.rounds):
        given, tasks = tasks, {}
        for k, model in given.items():
            assert isinstance(model, Model)
            update = np.zeros(count, np.float32) if server.client.difference else model.weights.copy()
            update[k] += CLIP * coins[k]
            actions = server.handle(k, Update(update, model.age, model.version))
            tasks |= {a.client: a.message for a in actions if isinstance(a, ToClient)}
    order = (server.weights.snapshot() - initial).argsort()
    half = max(1, int(count * GUESSED / 2))
    right = int((~coins[order[:half]]).sum() + coins[order[-half:]].sum())
    return Audit(claimed, lower_bound(plan.delta, count, 2 * half, right), right / (2 * half))


def main() -> None:
    """Audit and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epsilon", nargs="+", type=float, default=[1.0, 2.0, 4.0])
    parser.add_argument("--canaries", type=int, default=2000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--algorithms", nargs="+", default=["stride", "fedavg"])
    args = parser.parse_args()
    print(f"{'algorithm':>9} {'claimed':>8} {'noise':>6} {'right':>6}  lower bound of ε, by seed", flush=True)
    for algorithm in args.algorithms:
        for epsilon in args.epsilon:
            for noise in (True, False):
                plan = Plan(epsilon, algorithm, canaries=args.canaries)
                found = [audit(plan, seed, noise=noise) for seed in range(1, args.seeds + 1)]
                right = sum(each.right for each in found) / len(found)
                bounds = ", ".join(f"{each.shown:.2f}" for each in found)
                words = f"{found[0].claimed:>8.2f} {'on' if noise else 'off':>6} {right:>6.3f}"
                print(f"{algorithm:>9} {words}  {bounds}", flush=True)


if __name__ == "__main__":
    main()
