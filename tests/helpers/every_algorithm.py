"""All algorithms that are installed here, by name: the built-in ones, and those of the lab."""

from typing import Any

import pytest

from spyker.algorithms import builtin
from spyker.config.algorithms import NAMES, find_algorithm
from spyker.protocol.server import Server

ALGORITHMS: dict[str, type[Server]] = {name: find_algorithm(name) for name in NAMES.known()}


def slow(*names: str) -> list[Any]:
    """Parameters that are left out of ``make test``."""
    return [pytest.param(name, marks=pytest.mark.slow) for name in names]


BUILT_IN_FIRST = [*builtin.ALGORITHMS, *slow(*(name for name in ALGORITHMS if name not in builtin.ALGORITHMS))]
"""Parameters for tests that algorithms of the race pass because of what they share with the built-in ones."""
