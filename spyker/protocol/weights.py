"""The arithmetic on weight vectors: one pass over memory each, in blocks that stay in the processor's cache."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import numpy as np

from spyker.protocol.messages import Vector

BLOCK = 65_536  # elements; blocks of target, source and scratch together fit in a second-level cache
ONLY_REFERENCE = 2  # what sys.getrefcount says of an object that one attribute holds: that, and the call itself


def blocks(*vectors: Vector) -> Iterator[tuple[Vector, ...]]:
    """The vectors in steps of one block each, then what is left over."""
    whole = vectors[0].size // BLOCK * BLOCK
    yield from zip(*(vector[:whole].reshape(-1, BLOCK) for vector in vectors), strict=True)
    if whole < vectors[0].size:
        yield tuple(vector[whole:] for vector in vectors)


def mix(target: Vector, source: Vector, weight: float, out: Vector) -> None:
    """Write ``target + weight · (source − target)`` into ``out``, which may be ``target`` itself."""
    factor = np.float32(weight)
    if target.size <= BLOCK:
        difference = np.subtract(source, target, None if out is target else out)
        np.multiply(difference, factor, difference)
        np.add(target, difference, out)
        return
    scratch = np.empty(BLOCK, np.float32)
    for t, s, o in blocks(target, source, out):
        difference = scratch[: t.size]
        np.subtract(s, t, difference)
        np.multiply(difference, factor, difference)
        np.add(t, difference, o)


def accumulate(total: Vector, source: Vector, weight: float) -> None:
    """Add ``weight · source`` to ``total``, in place."""
    factor = np.float32(weight)
    scratch = np.empty(min(BLOCK, total.size), np.float32)
    for t, s in blocks(total, source):
        product = scratch[: t.size]
        np.multiply(s, factor, product)
        np.add(t, product, t)


def average(models: Sequence[Vector]) -> Vector:
    """The mean of some weight vectors."""
    total = np.zeros_like(models[0])
    for model in models:
        accumulate(total, model, 1 / len(models))
    return total


Mix: TypeAlias = Callable[[Vector, Vector, float, Vector], None]
"""What :func:`mix` does, by whatever means."""


class Weights:
    """The vector that a server owns.

    It is mixed in place as long as nobody else refers to it. While somebody holds a snapshot, such as a client that
    trains it or a message on its way, the next mix writes its result into a fresh vector, in the same single pass over
    memory. So what was sent is never written again, and nothing is ever copied just to be sent.
    """

    __slots__ = ("_empty", "_mix", "_vector")

    def __init__(self, initial: Vector, mix: Mix = mix, empty: Callable[[Vector], Vector] = np.empty_like) -> None:
        self._vector = initial
        self._mix = mix
        self._empty = empty

    def snapshot(self) -> Vector:
        """The vector as it is now, read-only and unchanged for as long as anybody refers to it."""
        self._vector.flags.writeable = False
        return self._vector

    def mix(self, other: Vector, weight: float) -> None:
        """``W ← W + weight · (other − W)``."""
        if self._alone():
            self._vector.flags.writeable = True
            self._mix(self._vector, other, weight, self._vector)
        else:
            fresh = self._empty(self._vector)
            self._mix(self._vector, other, weight, fresh)
            self._vector = fresh

    def replace(self, vector: Vector) -> None:
        """Take over a vector that others may hold as well."""
        self._vector = vector

    def _alone(self) -> bool:
        """Whether nobody else can see this memory: no other reference, not even a weak one, and not a view."""
        only = sys.getrefcount(self._vector) == ONLY_REFERENCE and not weakref.getweakrefcount(self._vector)
        return only and self._vector.flags.owndata
