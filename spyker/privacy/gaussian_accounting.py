"""The exact cost of Gaussian mechanisms without sampling, in closed form.

A Gaussian mechanism with noise multiplier z is μ-Gaussian differentially private with μ = 1/z, and several ones
together with the root of the sum of their squares (Dong, Roth and Su 2022). So T participations with one multiplier
cost as much as a single one with z/√T. Nothing is lost in the composition, and no library is needed: servers compute
it, too.
"""

from __future__ import annotations

from collections.abc import Callable
from math import erfc, exp, expm1, inf, log, log1p, pi, sqrt

HIGHEST = 1e6  # ε beyond which the search ends
MARGIN = 1e-6  # relative, by which noise is above what it has to be
FAR = -25.0  # below this, Φ underflows and its expansion is exact


def log_normal(x: float) -> float:
    """Return the logarithm of Φ(x), the probability that a standard normal number is at most ``x``."""
    if x > FAR:
        return log(0.5 * erfc(-x / sqrt(2)))
    square = 1 / (x * x)
    return -x * x / 2 - log(-x) - 0.5 * log(2 * pi) + log1p(-square + 3 * square * square)


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Return the smallest δ with which ``mu``-Gaussian differential privacy is (ε, δ)-differential privacy."""
    first, second = log_normal(mu / 2 - epsilon / mu), epsilon + log_normal(-mu / 2 - epsilon / mu)
    return exp(first) * -expm1(min(0.0, second - first))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return the smallest ε with which ``mu``-Gaussian differential privacy is (ε, δ)-differential privacy."""
    if mu == 0:
        return 0.0
    if not mu < inf:
        return inf
    return threshold(lambda epsilon: gaussian_delta(mu, epsilon) <= delta, 0.0, HIGHEST)


def gaussian_noise(epsilon: float, delta: float, steps: int) -> float:
    """Return the smallest noise multiplier with which this number of participations costs at most ``epsilon``."""
    inverse = threshold(lambda z: gaussian_delta(1 / z, epsilon) <= delta, 1e-6, 1e9)
    return inverse * sqrt(steps) * (1 + MARGIN)


def threshold(holds: Callable[[float], bool], low: float, high: float) -> float:
    """Return where ``holds`` begins to be true between ``low`` and ``high``; infinity if it never does."""
    if not holds(high):
        return inf
    if low > 0 and holds(low):
        return low
    for _ in range(200):
        middle = sqrt(low * high) if low > 0 else (low + high) / 2
        if not low < middle < high:
            break
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
