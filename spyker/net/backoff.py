"""Exponential backoff with jitter."""

from __future__ import annotations

import asyncio
import random


class Backoff:
    """Doubles the pause after each failure, up to a limit, with random jitter."""

    def __init__(self, first: float = 0.2, longest: float = 10.0) -> None:
        """Pauses in seconds. Jitter multiplies each by 0.5 to 1.5."""
        self._first, self._longest = first, longest
        self._pause = first

    def reset(self) -> None:
        """Start again with the first pause, after a success."""
        self._pause = self._first

    def seconds(self) -> float:
        """Return the next pause in seconds."""
        pause, self._pause = self._pause, min(self._longest, 2 * self._pause)
        return pause * random.uniform(0.5, 1.5)

    async def wait(self) -> None:
        """Wait for the next pause."""
        await asyncio.sleep(self.seconds())
