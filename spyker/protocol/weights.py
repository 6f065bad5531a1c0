"""A weight vector with copy-on-write snapshots."""

from __future__ import annotations

import weakref
from collections.abc import Callable

import numpy as np

from spyker.vectors import LazyVector, Mix, Vector, accumulate, mix

_ZEROS: weakref.WeakValueDictionary[int, Vector] = weakref.WeakValueDictionary()  # read-only, by size
_NOTHING: Vector = np.empty(0, np.float32)


class Weights:
    """A weight vector that a server owns.

    Operations work in place until :meth:`snapshot` is called, for a client, a message or a checkpoint. The next
    operation then writes its result into a new vector, in the same single pass over memory. Snapshots are therefore
    never modified, and sending a vector needs no copy.
    """

    __slots__ = ("_compute", "_empty", "_handed_out", "_mix", "_stored", "size")

    def __init__(self, initial: Vector, mix: Mix = mix, empty: Callable[[Vector], Vector] = np.empty_like) -> None:
        """Start from ``initial``, which may be shared and is not modified."""
        self.size = initial.size
        self._stored = initial
        self._compute: Callable[[Vector], object] | None = None
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
    def _vector(self) -> Vector:
        if self._compute is not None:
            self._stored, self._compute = self._computed(self._compute), None
        return self._stored

    @_vector.setter
    def _vector(self, vector: Vector) -> None:
        self._stored = vector

    @property
    def zero(self) -> bool:
        """Whether the vector is that of :meth:`zeros`. One that has become zero otherwise need not be recognised."""
        return self._compute is None and self._stored is _ZEROS.get(self._stored.size)

    @property
    def current(self) -> Vector:
        """The current vector, to read it before the next operation. Unlike a snapshot, it may be modified then."""
        return self._vector

    def snapshot(self) -> Vector:
        """Return the current vector, read-only and never modified afterwards."""
        self._vector.flags.writeable = False
        self._handed_out = True
        return self._vector

    def _computed(self, compute: Callable[[Vector], object]) -> Vector:
        vector = np.empty(self.size, np.float32)
        compute(vector)
        return vector

    def peek(self) -> Vector:
        """Return what :meth:`snapshot` returns, without storing it if it has to be computed."""
        return self.snapshot() if self._compute is None else self._computed(self._compute)

    def copy_to(self, memory: Vector) -> None:
        """Write the current vector to ``memory``."""
        if self._compute is None:
            np.copyto(memory, self._stored)
        else:
            self._compute(memory)

    def mix(self, other: Vector, weight: float) -> None:
        """``W ← W + weight · (other − W)``."""
        before = self._vector
        if self._handed_out:
            self._vector = self._empty(before)
            self._handed_out = False
        self._mix(before, other, weight, self._vector)

    def add_tail(self, tail: Vector, weight: float) -> None:
        """Add ``weight · tail`` to the last numbers."""
        if self._handed_out:
            self._vector = self._vector.copy()
            self._handed_out = False
        accumulate(self._vector[-tail.size :], tail, weight)

    def add(self, other: Vector | LazyVector, weight: float) -> None:
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
        self._stored, self._compute = vector, None
        self._handed_out = True

    def replace_later(self, compute: Callable[[Vector], object]) -> None:
        """Set the vector to what ``compute`` writes into an array. It is called when the vector is read, if ever."""
        self._stored, self._compute = _NOTHING, compute
        self._handed_out = True
