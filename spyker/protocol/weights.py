"""A weight vector with copy-on-write snapshots."""

from __future__ import annotations

import weakref
from collections.abc import Callable

import numpy as np

from spyker.vectors import Mix, Vector, accumulate, mix

_ZEROS: weakref.WeakValueDictionary[int, Vector] = weakref.WeakValueDictionary()  # read-only, by size


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
        """Return zeros of the size of ``like``. They take no memory of their own until the first change."""
        zeros = _ZEROS.get(like.size)
        if zeros is None:
            zeros = _ZEROS[like.size] = np.zeros(like.size, np.float32)  # unlike zeros_like, without writing to it
            zeros.flags.writeable = False
        return cls(zeros)

    @property
    def current(self) -> Vector:
        """The current vector, to read it before the next operation. Unlike a snapshot, it may be modified then."""
        return self._vector

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
        before = self._vector
        if self._handed_out:
            self._vector = self._empty(before)
            self._handed_out = False
        accumulate(before, other, weight, self._vector)

    def scale(self, factor: float) -> None:
        """``W ← factor · W``."""
        before = self._vector
        if self._handed_out:
            self._vector = self._empty(before)
            self._handed_out = False
        np.multiply(before, np.float32(factor), self._vector)

    def replace(self, vector: Vector) -> None:
        """Set the vector to ``vector``, which may be shared and is not modified."""
        self._vector = vector
        self._handed_out = True
