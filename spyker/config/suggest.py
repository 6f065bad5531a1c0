"""Suggestions for misspelt names, and lists of names in messages."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

FEW = 8  # add the list of all names to the guess if it is no longer than this


def suggest(name: object, known: Iterable[str], otherwise: str = "Choose one of") -> str:
    """Return a remedy: the most similar name, and all names if there are few or none is similar.

    Args:
        name: the misspelt name.
        known: all valid names.
        otherwise: text before the list of all names.

    """
    known = list(known)
    close = difflib.get_close_matches(str(name), known, 1, 0.5)
    everything = f"{otherwise}: {', '.join(known)}"
    if not close:
        return everything
    guess = f"Did you mean {close[0]!r}?"
    return f"{guess} {everything}" if 1 < len(known) <= FEW else guess


def listed(names: Sequence[str], most: int) -> str:
    """Return names as text; of more than ``most``, the first ones."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
