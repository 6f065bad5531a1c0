"""What was looked at, what was found, and what to do about it."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Severity(enum.Enum):
    """How bad it is."""

    FINE = "fine"
    NOTE = "note"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing."""

    what: str
    state: Severity
    found: str
    remedy: str = ""


def fine(what: str, found: str) -> Finding:
    """Nothing to do."""
    return Finding(what, Severity.FINE, found)


def note(what: str, found: str, remedy: str) -> Finding:
    """Only some need it, or it will be wrong one day."""
    return Finding(what, Severity.NOTE, found, remedy)


def wrong(what: str, found: str, remedy: str) -> Finding:
    """It cannot work like this."""
    return Finding(what, Severity.WRONG, found, remedy)
