"""Algorithms by name. An algorithm is a class; see :class:`~spyker.protocol.server.Server`."""

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
    """The algorithm of this name."""
    if name in ALGORITHMS:
        return ALGORITHMS[name]
    NAMES.check(name, where)
    found: Any = NAMES.find(name, where)
    if not (isinstance(found, type) and issubclass(found, Server)):
        raise UsageError(where, f"{show(name)} is no algorithm", "Name a class that extends spyker.Server")
    return found


def algorithm_code(name: str) -> str:
    """What code an algorithm depends on that is not ours, as a digest or a release; empty for a built-in one."""
    if name in ALGORITHMS:
        return ""
    if name.startswith(f"{PROGRAM}:"):
        return value_digest(find_algorithm(name))
    return NAMES.release(name) + code_digest(NAMES.place(name))


def parameter_sections(chosen: type[Server]) -> dict[str, type[Any]]:
    """The sections of a scenario file that hold parameters of algorithms, the chosen one's among them."""
    return {algorithm.section: algorithm.Parameters for algorithm in (*ALGORITHMS.values(), chosen)}
