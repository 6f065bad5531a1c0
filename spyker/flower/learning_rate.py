"""The learning rate of a Flower app: where the app configures it, and how to override it for one training."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

KEYS = ("lr", "learning-rate", "learning_rate")
"""The keys under which Flower's own examples have their rate."""


@dataclass(frozen=True, slots=True)
class AppLearningRate:
    """A learning rate in the configuration of an app."""

    value: float
    key: str
    place: str


def find_rate(key: str | None, places: Mapping[str, Mapping[str, Any]]) -> AppLearningRate | None:
    """Find the app's learning rate under a given key, or under the keys that Flower's examples use."""
    for place, config in places.items():
        for name in KEYS if key is None else (key,):
            value = config.get(name)
            if isinstance(value, Real) and not isinstance(value, bool) and 0 < float(value) < math.inf:
                return AppLearningRate(float(value), name, place)
    return None


def rate_entries(key: str | None, config: Mapping[str, Any], rate: float) -> dict[str, float]:
    """Return the configuration entries that hold the learning rate, set to another rate."""
    return {name: rate for name in (KEYS if key is None else (key,)) if name in config}
