"""Algorithms by name: those that come with Spyker, those of installed packages, and a class of one's own.

A package offers algorithms as entry points of the group ``spyker.algorithms``. A name with a colon, ``module:Class``,
is a class that Python finds from the current folder.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import sys
from importlib.metadata import entry_points
from typing import Any

from spyker.config.sections import ScenarioError, show
from spyker.protocol.registry import ALGORITHMS
from spyker.protocol.server import Server

GROUP = "spyker.algorithms"


@functools.cache
def find_algorithm(name: str, where: str = "algorithm") -> type[Server]:
    """The algorithm of this name."""
    if name in ALGORITHMS:
        return ALGORITHMS[name]
    offered = {entry.name: entry.value for entry in entry_points(group=GROUP)}
    place = offered.get(name, name)
    if ":" not in place:
        known = [*ALGORITHMS, *offered]
        close = difflib.get_close_matches(name, known, 1, 0.5)
        guess = f"Did you mean {show(close[0])}? " if close else ""
        remedy = f"{guess}Choose one of {', '.join(known)}, or write module:Class"
        raise ScenarioError(where, f"{show(name)} is no algorithm", remedy)
    module, _, attribute = place.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found: Any = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ScenarioError(
            where, f"{show(name)} cannot be imported ({error})", "Run from the folder that holds the module"
        ) from None
    if not (isinstance(found, type) and issubclass(found, Server)):
        raise ScenarioError(where, f"{show(name)} is no algorithm", "Name a class that extends spyker.Server")
    return found


def parameter_sections(chosen: type[Server]) -> dict[str, type[Any]]:
    """The sections of a scenario file that hold parameters of algorithms, the chosen one's among them."""
    return {algorithm.section: algorithm.Parameters for algorithm in (*ALGORITHMS.values(), chosen)}
