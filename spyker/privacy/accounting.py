"""The cost of trainings: exact where nothing is sampled, otherwise by the PRV accountant of Opacus."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import lru_cache
from math import inf, sqrt
from typing import NamedTuple

from spyker.privacy.gaussian_accounting import gaussian_epsilon

FIELD = "privacy.unit"
MOST_TRAININGS = 1 << 20  # that a search for the end of a budget considers
MOST_STEPS = 10_000_000  # with more, the accountant may compute for hours


class Mechanism(NamedTuple):
    """The noisy steps of one training: a subsampled Gaussian mechanism, repeated."""

    noise: float
    """Standard deviation of the noise as a multiple of the clipping norm."""
    sample_rate: float
    """Probability with which a step uses an example."""
    steps: int


class Booking(NamedTuple):
    """A number of trainings with the same mechanism."""

    mechanism: Mechanism
    trainings: int


@lru_cache(maxsize=256)
def _epsilon(bookings: tuple[Booking, ...], delta: float) -> float:
    from opacus.accountants import PRVAccountant  # an extra, and slow to import

    accountant = PRVAccountant()
    accountant.history = [(m.noise, m.sample_rate, m.steps * trainings) for m, trainings in bookings]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return float(accountant.get_epsilon(delta))


def epsilon_of(bookings: Sequence[Booking], delta: float) -> float:
    """Return ε of all booked trainings together; 0 if there are none, infinity with more steps than ``MOST_STEPS``."""
    some = tuple(booking for booking in bookings if booking.trainings)
    if all(mechanism.sample_rate == 1 for mechanism, _ in some):
        return gaussian_epsilon(sqrt(sum(m.steps * trainings / m.noise**2 for m, trainings in some)), delta)
    if sum(mechanism.steps * trainings for mechanism, trainings in some) > MOST_STEPS:
        return inf
    return _epsilon(some, delta) if some else 0.0


@lru_cache(maxsize=256)
def noise_for(epsilon: float, delta: float, sample_rate: float, steps: int) -> float:
    """Return the smallest noise multiplier with which this number of steps costs at most ``epsilon``."""
    from opacus.accountants.utils import get_noise_multiplier

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return float(
            get_noise_multiplier(
                target_epsilon=epsilon, target_delta=delta, sample_rate=sample_rate, steps=steps, accountant="prv"
            )
        )


def most_trainings(mechanism: Mechanism, epsilon: float, delta: float) -> int:
    """Return how many trainings cost at most ``epsilon``."""

    def fits(trainings: int) -> bool:
        return epsilon_of([Booking(mechanism, trainings)], delta) <= epsilon

    low, high = 0, 1
    while high < MOST_TRAININGS and fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
