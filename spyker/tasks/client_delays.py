"""How fast clients train."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np

from spyker.config.delays import Gaussian
from spyker.config.scenario import Scenario

OUTER = NormalDist().inv_cdf(0.95)  # how many standard deviations the 95th percentile is from the median


def delays(scenario: Scenario) -> list[float]:
    """Seconds per training, one per client. They follow from the seed alone and so are the same for all algorithms."""
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
