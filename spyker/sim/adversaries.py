"""Clients that answer with something else than what they trained. Who they are, and what they say, follows from the
seed: a training that is answered twice is answered alike.
"""

from __future__ import annotations

import numpy as np

from spyker.config.scenario import AdversaryOptions, Scenario
from spyker.engines.engine import TrainJob
from spyker.vectors import Vector, length

HUGE = 1e30
CHOICE, NOISE = 0xBAD, 0xBAD5EED  # random numbers that nothing else uses


class Adversaries:
    """Falsifies the answers of some clients."""

    def __init__(self, options: AdversaryOptions, clients: frozenset[int], seed: int) -> None:
        self.options, self.clients, self.seed = options, clients, seed

    @classmethod
    def of(cls, scenario: Scenario) -> Adversaries | None:
        """Those of a scenario, if it has any."""
        options, count = scenario.world.adversaries, scenario.client_count
        if options is None:
            return None
        random = np.random.default_rng((scenario.seed, CHOICE))
        chosen = random.choice(count, round(options.share * count), replace=False)
        return cls(options, frozenset(chosen.tolist()), scenario.seed)

    def answer(self, job: TrainJob, trained: Vector) -> Vector:
        """What a client says came of its training."""
        if job.client not in self.clients:
            return trained
        kind, strength = self.options.kind, np.float32(self.options.strength)
        if kind == "huge":
            return np.full_like(trained, HUGE)
        if kind == "sign-flip":
            return job.weights - strength * (trained - job.weights)
        random = np.random.default_rng((self.seed, NOISE, job.client, job.step))
        noise = random.standard_normal(trained.size, np.float32)
        far = length(trained - job.weights) / max(length(noise), 1e-12)
        return job.weights + strength * np.float32(far) * noise
