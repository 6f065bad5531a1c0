"""Adversaries: clients that send falsified updates. Clients and updates depend only on the seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from spyker.config.scenario import Scenario
from spyker.config.world import AdversaryOptions
from spyker.engines.engine import TrainJob
from spyker.errors import UsageError
from spyker.protocol.masked_client import MaskingClient
from spyker.protocol.messages import Action, MaskedUpdate, ToServer
from spyker.vectors import Vector, length

HUGE = 1e30
CLAIMED = 1 << 31  # examples, the most that a deployed server accepts
WRONG = 1.0  # standard deviation of the wrong model's weights, which is far from any trained model
CHOICE, NOISE, MODEL = 0xBAD, 0xBAD5EED, 0xBAD0DE1  # seeds of independent random streams


class UnclippedClient(MaskingClient):
    """A client that does not clip what it masks. Huge values, modulo 2³², are random numbers."""

    __slots__ = ()

    def trained(
        self,
        weights: Vector,
        examples: int | None = None,
        metrics: Mapping[str, float] | None = None,
        evaluation: Mapping[str, float] | None = None,
    ) -> list[Action]:
        """The end of a training: send a masked difference of random numbers."""
        random = np.random.default_rng((NOISE, self.id, self.step))
        actions = super().trained(weights, examples, metrics, evaluation)
        for action in actions:
            assert isinstance(action, ToServer)
            assert isinstance(action.message, MaskedUpdate)
            masked = action.message.masked
            masked += random.integers(0, 1 << 32, masked.size, np.uint32)
        return actions


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
        if options.clients is None:
            random = np.random.default_rng((scenario.seed, CHOICE))
            chosen = random.choice(count, round(options.share * count), replace=False).tolist()
        else:
            chosen = list(options.clients)
            if max(chosen, default=0) >= count:
                problem = f"{max(chosen)} is not allowed: there are {count} clients, counted from 0"
                raise UsageError("world.adversaries.clients", problem, "Use smaller numbers")
        return cls(options, frozenset(chosen), scenario.seed)

    def delays(self, honest: Sequence[float]) -> list[float]:
        """Return the seconds that each client trains: none for adversaries that skip the training."""
        skip = self.clients if self.options.kind == "rate" else ()
        return [0.0 if k in skip else seconds for k, seconds in enumerate(honest)]

    def masking_client(self, client: int) -> type[MaskingClient]:
        """Return the class of a client that masks its updates."""
        return UnclippedClient if self.options.kind == "huge" and client in self.clients else MaskingClient

    def sizes(self, honest: Callable[[int], int]) -> Callable[[int], int]:
        """Return the numbers of data points that clients claim."""
        lying = self.clients if self.options.kind == "size" else ()
        return lambda k: CLAIMED if k in lying else honest(k)

    def examples(self, job: TrainJob) -> int | None:
        """Return the number of examples that a client claims for an update."""
        lies = self.options.kind == "size" and job.client in self.clients
        return CLAIMED if lies and job.examples is not None else job.examples

    def answer(self, job: TrainJob, trained: Vector) -> Vector:
        """Return the update that a client sends: falsified if the client is an adversary."""
        if job.client not in self.clients:
            return trained
        kind, strength = self.options.kind, np.float32(self.options.strength)
        match kind:
            case "huge":
                return np.full_like(trained, HUGE)
            case "sign-flip":
                return job.weights - strength * (trained - job.weights)
            case "boost":
                return job.weights + strength * (trained - job.weights)
            case "noise":
                random = np.random.default_rng((self.seed, NOISE, job.client, job.step))
                direction = random.standard_normal(trained.size, np.float32)
            case _:  # pull, size, rate
                random = np.random.default_rng((self.seed, MODEL))  # all adversaries have the same wrong model
                direction = np.float32(WRONG) * random.standard_normal(trained.size, np.float32) - job.weights
        scale = length(trained - job.weights) / max(length(direction), 1e-12)
        return job.weights + strength * np.float32(scale) * direction
