"""What to say to somebody who wrote a name that does not exist."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

FEW = 8  # names that can be listed beside a guess, which may be wrong


def suggest(name: object, known: Iterable[str], otherwise: str = "Choose one of") -> str:
    """A remedy: the name that was probably meant; and if there are few, or none is like it, all that there are.

    Before those stand the words of ``otherwise``.
    """
    known = list(known)
    close = difflib.get_close_matches(str(name), known, 1, 0.5)
    everything = f"{otherwise}: {', '.join(known)}"
    if not close:
        return everything
    guess = f"Did you mean {close[0]!r}?"
    return f"{guess} {everything}" if 1 < len(known) <= FEW else guess
