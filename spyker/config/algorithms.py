"""Lookup of algorithms by name. An algorithm is a subclass of :class:`~spyker.protocol.server.Server`."""

from __future__ import annotations

import functools
from typing import Any

from spyker.algorithms.builtin import ALGORITHMS
from spyker.config.name_lookup import NameLookup
from spyker.config.sections import show
from spyker.errors import UsageError
from spyker.own_code import PROGRAM, code_digest, value_digest
from spyker.protocol.server import Server

NAMES = NameLookup(ALGORITHMS, "spyker.algorithms", "module:Class")


@functools.cache
def find_algorithm(name: str, where: str = "algorithm") -> type[Server]:
    """Return the algorithm with this name.

    Raises:
        UsageError: the name is unknown or does not refer to an algorithm.

    """
    if name in ALGORITHMS:
        return ALGORITHMS[name]
    NAMES.check(name, where)
    found: Any = NAMES.find(name, where)
    if not (isinstance(found, type) and issubclass(found, Server)):
        raise UsageError(
            where, f"{show(name)} is not allowed: it is not an algorithm", "Name a subclass of spyker.Server"
        )
    return found


def algorithm_code(name: str) -> str:
    """Return a digest or release of the user's code that an algorithm depends on; empty for built-in algorithms."""
    if name in ALGORITHMS:
        return ""
    if name.startswith(f"{PROGRAM}:"):
        return value_digest(find_algorithm(name))
    return NAMES.release(name) + code_digest(NAMES.place(name))


def parameter_sections(chosen: type[Server]) -> dict[str, type[Any]]:
    """Return the parameter classes of the built-in and the chosen algorithm, by section."""
    return {algorithm.section: algorithm.Parameters for algorithm in (*ALGORITHMS.values(), chosen)}
