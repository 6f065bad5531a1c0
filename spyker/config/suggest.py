"""What to say to somebody who wrote a name that does not exist."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def suggest(name: object, known: Iterable[str], otherwise: str = "Choose one of") -> str:
    """A remedy: the name that was probably meant, or else all that there are, after the words of ``otherwise``."""
    known = list(known)
    close = difflib.get_close_matches(str(name), known, 1, 0.5)
    return f"Did you mean {close[0]!r}?" if close else f"{otherwise}: {', '.join(known)}"
