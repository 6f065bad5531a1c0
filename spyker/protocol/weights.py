"""A vector that its owner changes and others may keep: what was handed out is never written again."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from spyker.vectors import Mix, Vector, accumulate, mix


class Weights:
    """The vector that a server owns.

    It is changed in place until somebody is given a snapshot, such as a client that trains it, a message on its way or
    a checkpoint. The next change then writes its result into a fresh vector, in the same single pass over memory. So
    what was sent is never written again, and nothing is ever copied just to be sent.
    """

    __slots__ = ("_empty", "_handed_out", "_mix", "_vector")

    def __init__(self, initial: Vector, mix: Mix = mix, empty: Callable[[Vector], Vector] = np.empty_like) -> None:
        """Begin with a vector that others may hold as well."""
        self._vector = initial
        self._handed_out = True
        self._mix = mix
        self._empty = empty

    @classmethod
    def zeros(cls, like: Vector) -> Weights:
        """As many zeros as a vector has entries."""
        weights = cls(np.zeros(like.shape, like.dtype))  # unlike zeros_like, without writing to it
        weights._handed_out = False
        return weights

    def snapshot(self) -> Vector:
        """The vector as it is now, read-only and unchanged from now on."""
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
        """Take over a vector that others may hold as well."""
        self._vector = vector
        self._handed_out = True
