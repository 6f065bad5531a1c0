"""How long to wait before another attempt."""

from __future__ import annotations

import asyncio
import random


class Backoff:
    """Twice as long after each failure, up to a limit, and never in step with others who failed at the same time."""

    def __init__(self, first: float = 0.2, longest: float = 10.0) -> None:
        """Seconds; what is waited is between half and one and a half of that."""
        self._first, self._longest = first, longest
        self._pause = first

    def reset(self) -> None:
        """It worked: the next failure is the first again."""
        self._pause = self._first

    def seconds(self) -> float:
        """The next pause."""
        pause, self._pause = self._pause, min(self._longest, 2 * self._pause)
        return pause * random.uniform(0.5, 1.5)

    async def wait(self) -> None:
        """Pause."""
        await asyncio.sleep(self.seconds())
