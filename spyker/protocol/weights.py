"""A weight vector with copy-on-write snapshots."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from spyker.vectors import Mix, Vector, accumulate, mix


class Weights:
    """A weight vector that a server owns.

    Operations work in place until :meth:`snapshot` is called, for a client, a message or a checkpoint. The next
    operation then writes its result into a new vector, in the same single pass over memory. Snapshots are therefore
    never modified, and sending a vector needs no copy.
    """

    __slots__ = ("_empty", "_handed_out", "_mix", "_vector")

    def __init__(self, initial: Vector, mix: Mix = mix, empty: Callable[[Vector], Vector] = np.empty_like) -> None:
        """Start from ``initial``, which may be shared and is not modified."""
        self._vector = initial
        self._handed_out = True
        self._mix = mix
        self._empty = empty

    @classmethod
    def zeros(cls, like: Vector) -> Weights:
        """Return zeros of the shape of ``like``."""
        weights = cls(np.zeros(like.shape, like.dtype))  # unlike zeros_like, without writing to it
        weights._handed_out = False
        return weights

    def snapshot(self) -> Vector:
        """Return the current vector, read-only and never modified afterwards."""
        self._vector.flags.writeable = False
        self._handed_out = True
        return self._vector

    def mix(self, other: Vector, weight: float) -> None:
        """``W ← W + weight · (other − W)``."""
        before = self._vector
        if self._handed_out:
            self._vector = self._empty(before)
            self._handed_out = False
        self._mix(before, other, weight, self._vector)

    def add(self, other: Vector, weight: float) -> None:
        """``W ← W + weight · other``."""
        if self._handed_out:
            self._vector = self._vector.copy()
            self._handed_out = False
        accumulate(self._vector, other, weight)

    def scale(self, factor: float) -> None:
        """``W ← factor · W``."""
        if self._handed_out:
            self._vector = self._vector.copy()
            self._handed_out = False
        self._vector *= np.float32(factor)

    def replace(self, vector: Vector) -> None:
        """Set the vector to ``vector``, which may be shared and is not modified."""
        self._vector = vector
        self._handed_out = True
