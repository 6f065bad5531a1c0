"""How often a run is saved: seldom enough not to be felt."""

from __future__ import annotations

import time

SECONDS = 30.0  # of real time, between two saves
SHARE = 20  # the next one waits for so many times as long as the last one took


class SaveInterval:
    """Says when to save."""

    def __init__(self) -> None:
        self._asked = time.monotonic()
        self._next = self._asked + SECONDS

    def due(self) -> bool:
        """Whether it is time again."""
        self._asked = time.monotonic()
        return self._asked >= self._next

    def done(self) -> None:
        """It was saved."""
        now = time.monotonic()
        self._next = now + max(SECONDS, SHARE * (now - self._asked))
