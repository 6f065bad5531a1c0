"""Vectors to receive models into, used again and again: fresh memory costs a page fault for every 4 kB of it."""

from __future__ import annotations

import asyncio
import sys

import numpy as np

from spyker.vectors import Vector

POOLED_FROM = 1 << 18  # parameters; below a megabyte the allocator does this itself
ONLY_THE_POOL = 2  # what sys.getrefcount says of a vector that the pool's list alone holds: that, and the call


class BufferPool:
    """Hands out vectors for arriving models, at most so many at a time that they fit into ``memory`` bytes.

    Whoever finds none waits, does not read on, and so makes its peer wait. A vector is free again when nobody refers to
    it, be it because it was mixed in or because its stream broke; nobody has to give it back. ``free`` must be called
    once for each ``turn``, when the message is done with, so that others may take their turn.
    """

    def __init__(self, parameters: int, memory: int) -> None:
        self.parameters = parameters
        self.slots = max(2, memory // (4 * parameters))
        self._turns = asyncio.Semaphore(self.slots)
        self._vectors: list[Vector] = []

    async def turn(self) -> None:
        """Wait for one's turn to receive a model."""
        await self._turns.acquire()

    def free(self) -> None:
        """A message that :meth:`turn` was awaited for has been dealt with."""
        self._turns.release()

    def vector(self) -> Vector:
        """A vector that nobody refers to, whatever is in it."""
        if self.parameters < POOLED_FROM:
            return np.empty(self.parameters, np.float32)
        for i in range(len(self._vectors)):
            if sys.getrefcount(self._vectors[i]) == ONLY_THE_POOL:
                self._vectors[i].flags.writeable = True
                return self._vectors[i]
        fresh = np.empty(self.parameters, np.float32)
        if len(self._vectors) < self.slots:
            self._vectors.append(fresh)
        return fresh
