"""Declaration of parameters: dataclass fields with a default, a description and a range of allowed values.

Scenario files are parsed, checked and documented from these declarations.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Rule:
    """Description and allowed values of a parameter."""

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
    """Declare a parameter as a dataclass field.

    Args:
        default: the default value.
        doc: one line of description for scenario files and reference pages.
        at_least: the smallest allowed value.
        at_most: the largest allowed value.
        above: an exclusive lower bound.
        choices: the allowed strings.

    Returns:
        A dataclass field.

    """
    rule = Rule(doc, at_least, at_most, above, choices)
    return dataclasses.field(default=default, metadata={"rule": rule})
