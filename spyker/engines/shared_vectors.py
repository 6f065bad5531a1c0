"""Vectors in memory that processes share.

A vector is free again when the last reference to it in the process that made the pool is gone. Its memory is taken from
the system when it is first written, and kept for the next vector.
"""

from __future__ import annotations

import os
import weakref
from multiprocessing.heap import Arena

import numpy as np

from spyker.vectors import Vector

PAGE = 4096  # vectors begin at a page, so that results do not depend on their alignment


class SharedVectors:
    """A pool of float32 vectors. It can be passed to a process that is being started."""

    def __init__(self, size: int, count: int, spare: int = 0) -> None:
        """Create ``count`` vectors that can be taken, and ``spare`` more for vectors that are kept."""
        self.size, self._spare = size, spare
        self._arena = _arena((count + spare) * self._stride)
        self._free = list(reversed(range(count + spare)))  # the last one that was used is taken first
        self._taken: dict[int, weakref.ref[Vector]] = {}
        self._kept: set[int] = set()

    @property
    def _stride(self) -> int:
        return -(-max(1, 4 * self.size) // PAGE) * PAGE

    def __getstate__(self) -> dict[str, object]:
        """Pass on the memory; the other process finds vectors by their numbers."""
        return {"size": self.size, "_arena": self._arena}

    def at(self, number: int) -> Vector:
        """Return a vector by its number, without taking it."""
        return np.frombuffer(self._arena.buffer, np.float32, self.size, number * self._stride)

    def take(self) -> tuple[int, Vector]:
        """Take a vector; return it with its number."""
        number = self._free.pop()
        vector = self.at(number)
        self._taken[number] = weakref.ref(vector, lambda _: self._release(number))
        return number, vector

    def spare(self) -> Vector | None:
        """Return a vector that may be kept for long, or ``None`` if too many are kept."""
        if len(self._kept) == self._spare:
            return None
        number, vector = self.take()
        self._kept.add(number)
        return vector

    def number_of(self, vector: object) -> int | None:
        """Return the number of a vector that was taken; ``None`` for any other."""
        return next((number for number, taken in self._taken.items() if taken() is vector), None)

    def keep(self, number: int, vector: Vector) -> Vector:
        """Return a taken vector that may be kept for long, or a copy if too many are kept."""
        if len(self._kept) == self._spare:
            return vector.copy()
        self._kept.add(number)
        return vector

    def _release(self, number: int) -> None:
        del self._taken[number]
        self._kept.discard(number)
        self._free.append(number)


def _arena(size: int) -> Arena:
    """Return shared memory, which is not limited by the size of /dev/shm where the system offers that."""
    if not hasattr(os, "memfd_create"):
        return Arena(size)
    file = os.memfd_create("spyker")
    os.ftruncate(file, size)
    arena = Arena(size, file)
    weakref.finalize(arena, os.close, file)
    return arena
