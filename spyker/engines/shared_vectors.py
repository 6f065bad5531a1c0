"""Vectors in memory that processes share.

A vector is free again when the last reference to it in the process that made the pool is gone. Its memory is taken from
the system when it is first written, and kept for the next vector.
"""

from __future__ import annotations

import os
import weakref
from mmap import ACCESS_COPY, ALLOCATIONGRANULARITY, mmap
from multiprocessing.heap import Arena

import numpy as np

from spyker.vectors import Vector

PAGE = ALLOCATIONGRANULARITY  # vectors begin at a page: their alignment is always the same, and each can be mapped


class SharedVectors:
    """A pool of float32 vectors. It can be passed to a process that is being started."""

    def __init__(self, size: int, count: int, spare: int = 0) -> None:
        """Create ``count`` vectors that can be taken, and ``spare`` more for vectors that are kept."""
        self.size, self._spare = size, spare
        self._arena = _arena((count + spare) * self._stride)
        self._count = count + spare
        self._free = list(reversed(range(self._count)))  # the last one that was used is taken first
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

    def private(self, number: int) -> Vector:
        """Return a vector as it is now, without copying it if possible. What is written to it stays in this process."""
        file = getattr(self._arena, "fd", None)
        if file is None:  # as on Windows
            return self.at(number).copy()
        memory = mmap(file, self._stride, access=ACCESS_COPY, offset=number * self._stride)
        return np.frombuffer(memory, np.float32, self.size)

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
        for number in range(self._count):  # not over what is taken: a release may come at any time
            taken = self._taken.get(number)
            if taken is not None and taken() is vector:
                return number
        return None

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
