"""How fast clients train."""

from __future__ import annotations

import numpy as np

from spyker.config.scenario import Gaussian, Scenario


def delays(scenario: Scenario) -> list[float]:
    """Seconds per training, one per client. They follow from the seed alone and so are the same for all algorithms."""
    given = scenario.training.delay_ms
    if isinstance(given, Gaussian):
        random = np.random.default_rng((scenario.seed, 0x5EED))
        drawn = random.normal(given.mean, given.std, scenario.client_count)
        return [float(ms) / 1000 for ms in np.maximum(drawn, given.floor)]
    return [ms / 1000 for ms in given]
