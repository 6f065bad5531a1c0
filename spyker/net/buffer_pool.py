"""A pool of vectors for incoming models. New memory would cost a page fault for every 4 kB."""

from __future__ import annotations

import asyncio
import sys

import numpy as np

from spyker.vectors import Vector

POOLED_FROM = 1 << 18  # parameters; the allocator itself reuses blocks of less than a megabyte
UNUSED = 2  # sys.getrefcount of a vector to which only the pool's list, and the call itself, refer


class BufferPool:
    """Vectors for incoming models, limited to ``memory`` bytes.

    A receiver without a slot waits and does not read, which slows the sender down (backpressure). Each :meth:`turn` is
    followed by one :meth:`free`, when the message is handled. A vector is reused when nothing refers to it any more; it
    is not returned explicitly.
    """

    def __init__(self, parameters: int, memory: int) -> None:
        self.parameters = parameters
        self.slots = max(2, memory // (4 * parameters))
        self._turns = asyncio.Semaphore(self.slots)
        self._vectors: list[Vector] = []

    async def turn(self) -> None:
        """Acquire a slot to receive a model."""
        await self._turns.acquire()

    def free(self) -> None:
        """Release a slot."""
        self._turns.release()

    def vector(self) -> Vector:
        """Return an unused vector with arbitrary content."""
        if self.parameters < POOLED_FROM:
            return np.empty(self.parameters, np.float32)
        for i in range(len(self._vectors)):
            if sys.getrefcount(self._vectors[i]) == UNUSED:
                self._vectors[i].flags.writeable = True
                return self._vectors[i]
        fresh = np.empty(self.parameters, np.float32)
        if len(self._vectors) < self.slots:
            self._vectors.append(fresh)
        return fresh
