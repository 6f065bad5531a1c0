"""Adversaries: clients that send falsified updates. Clients and updates depend only on the seed."""

from __future__ import annotations

import numpy as np

from spyker.config.scenario import AdversaryOptions, Scenario
from spyker.engines.engine import TrainJob
from spyker.vectors import Vector, length

HUGE = 1e30
CHOICE, NOISE = 0xBAD, 0xBAD5EED  # seeds of independent random streams


class Adversaries:
    """The adversaries of a scenario."""

    def __init__(self, options: AdversaryOptions, clients: frozenset[int], seed: int) -> None:
        self.options, self.clients, self.seed = options, clients, seed

    @classmethod
    def of(cls, scenario: Scenario) -> Adversaries | None:
        """Return the adversaries of a scenario, or ``None``."""
        options, count = scenario.world.adversaries, scenario.client_count
        if options is None:
            return None
        random = np.random.default_rng((scenario.seed, CHOICE))
        chosen = random.choice(count, round(options.share * count), replace=False)
        return cls(options, frozenset(chosen.tolist()), scenario.seed)

    def answer(self, job: TrainJob, trained: Vector) -> Vector:
        """Return the update that a client sends: falsified if the client is an adversary."""
        if job.client not in self.clients:
            return trained
        kind, strength = self.options.kind, np.float32(self.options.strength)
        if kind == "huge":
            return np.full_like(trained, HUGE)
        if kind == "sign-flip":
            return job.weights - strength * (trained - job.weights)
        random = np.random.default_rng((self.seed, NOISE, job.client, job.step))
        noise = random.standard_normal(trained.size, np.float32)
        scale = length(trained - job.weights) / max(length(noise), 1e-12)
        return job.weights + strength * np.float32(scale) * noise
