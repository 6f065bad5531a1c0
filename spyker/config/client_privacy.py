"""The settings of client-level differential privacy that follow from a scenario."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from spyker.config.privacy_settings import CLIENT, PrivacySettings
from spyker.config.scenario import Scenario
from spyker.errors import UsageError
from spyker.privacy.accounting import FIELD, Booking, Mechanism, epsilon_of, most_trainings
from spyker.privacy.client_noise import ClientPrivacy, NoiseStream, clip_target
from spyker.privacy.fixed_point import scale_for
from spyker.privacy.gaussian_accounting import gaussian_noise
from spyker.privacy.masking import HEADROOM, LEVELS

GROWTH = 4  # times the planned number of clients with which a masked sum still has room for roundings
ABSURD = 1.0  # ratio of noise to the largest possible mean update from which on a run is warned about


@dataclass(frozen=True, slots=True)
class ClientBudget:
    """What a participation of a client costs, and how many it may have."""

    settings: PrivacySettings
    mechanism: Mechanism
    participations: int

    @classmethod
    def of(cls, settings: PrivacySettings) -> ClientBudget | None:
        """Return the budget that the settings determine; ``None`` without client-level differential privacy."""
        if not settings.per_client:
            return None
        noise, epsilon, trainings = settings.noise_multiplier, settings.epsilon, settings.trainings
        if noise is None:
            assert epsilon is not None
            assert trainings is not None
            return cls(settings, Mechanism(gaussian_noise(epsilon, settings.delta, trainings), 1.0, 1), trainings)
        mechanism = Mechanism(noise, 1.0, 1)
        most = math.inf if epsilon is None else most_trainings(mechanism, epsilon, settings.delta)
        return cls(settings, mechanism, int(min(most, trainings or most)))

    def epsilon(self, participations: int) -> float:
        """Return ε of this number of participations."""
        return epsilon_of([Booking(self.mechanism, participations)], self.settings.delta)


def client_privacy(
    scenario: Scenario, size: int, buffers: int, stream: Callable[[int], NoiseStream] | None
) -> ClientPrivacy | None:
    """Return the settings for servers; ``None`` if they add no noise.

    Args:
        scenario: the scenario.
        size: number of weights of the model.
        buffers: number of buffers among them.
        stream: returns what each server's noise follows from.

    Raises:
        UsageError: the model cannot be protected.

    """
    budget = ClientBudget.of(scenario.privacy)
    if budget is None or stream is None:
        return None
    if buffers:
        problem = f"{CLIENT} is not allowed: the model has {buffers:,} buffers, such as BatchNorm's variances"
        raise UsageError(FIELD, problem, "Replace BatchNorm by torch.nn.GroupNorm")
    clip_norm, expected = scenario.privacy.clip_norm, expected_clients(scenario)
    if scenario.privacy.masking:
        terms = 2 ** math.ceil(math.log2(GROWTH * max(4, *expected.values()))) * LEVELS
        grid = math.ldexp(1.0, HEADROOM - scale_for(clip_norm, terms))
        if clip_target(clip_norm, size, grid) < clip_norm / 2:
            problem = f"true is not allowed with unit = {CLIENT}: sums of {size:,} masked numbers are rounded too much"
            raise UsageError("privacy.masking", problem, "Use a smaller model, more regions, or no masking")
    return ClientPrivacy(
        clip_norm, budget.mechanism.noise, budget.participations, expected, budget.settings.delta, stream
    )


def noise_ratio(scenario: Scenario, size: int) -> float:
    """Return the noise in the mean update of the smallest region, as a multiple of the largest norm that it can have.

    With FedAvg's ``fraction`` or FedBuff's buffer, a round has fewer clients than a region.
    """
    budget = ClientBudget.of(scenario.privacy)
    if budget is None:
        return 0.0
    clients = float(min(expected_clients(scenario).values()))
    clients *= getattr(scenario.parameters, "fraction", 1.0)
    clients = min(clients, getattr(scenario.parameters, "buffer", math.inf))
    return budget.mechanism.noise * math.sqrt(size) / max(1.0, clients)


def check_noise(scenario: Scenario, size: int) -> str | None:
    """Return a warning if the noise hides every update; ``None`` if it does not."""
    ratio = noise_ratio(scenario, size)
    if ratio < ABSURD:
        return None
    fewest = min(expected_clients(scenario).values())
    return (
        f"privacy.unit: {CLIENT} adds noise {ratio:,.1f} times as long as the longest possible mean update of "
        f"{fewest:,} clients with {size:,} weights, so the model will hardly learn. Use more clients per server (fewer "
        "regions), plan fewer trainings, use a smaller model, or raise epsilon"
    )


def expected_clients(scenario: Scenario) -> dict[int, int]:
    """Return the number of clients that each server is planned to have."""
    places = scenario.placement()
    return {i: max(1, len(places.clients_of(i))) for i in places.learners}
