"""Training delays of clients."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np

from spyker.config.delays import Gaussian
from spyker.config.scenario import Scenario

OUTER = NormalDist().inv_cdf(0.95)  # standard deviations from the median to the 95th percentile


def delays(scenario: Scenario) -> list[float]:
    """Return the seconds per training of each client. They depend only on the seed, not on the algorithm."""
    given = scenario.training.delay_ms
    if isinstance(given, tuple):
        return [ms / 1000 for ms in given]
    random = np.random.default_rng((scenario.seed, 0x5EED))
    if isinstance(given, Gaussian):
        drawn = np.maximum(random.normal(given.mean, given.std, scenario.client_count), given.floor)
    else:
        spread = math.log(given.ratio) / (2 * OUTER)
        drawn = random.lognormal(math.log(given.median), spread, scenario.client_count)
    return [float(ms) / 1000 for ms in drawn]
