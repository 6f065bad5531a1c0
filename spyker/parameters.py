"""How an algorithm declares its parameters: a frozen dataclass whose fields carry a default, a line of documentation
and the range of what makes sense. Scenario files are read, checked and documented from these declarations alone.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Rule:
    """What a parameter means and which values it may take."""

    doc: str
    at_least: float | None = None
    at_most: float | None = None
    above: float | None = None
    choices: tuple[str, ...] = ()


def parameter(
    default: Any,
    doc: str,
    *,
    at_least: float | None = None,
    at_most: float | None = None,
    above: float | None = None,
    choices: tuple[str, ...] = (),
) -> Any:
    """A dataclass field with its documentation and its range."""
    rule = Rule(doc, at_least, at_most, above, choices)
    return dataclasses.field(default=default, metadata={"rule": rule})
