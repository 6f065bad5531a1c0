"""The arithmetic on weight vectors: one pass over memory each, in blocks that stay in the processor's cache."""

from __future__ import annotations

import numpy as np

from spyker.protocol.messages import Vector

BLOCK = 32_768  # elements; a block of target, source and scratch fits in a second-level cache


def mix(target: Vector, source: Vector, weight: float, out: Vector) -> None:
    """Write ``target + weight · (source − target)`` into ``out``, which may be ``target`` itself."""
    if target.size <= BLOCK:
        np.add(target, (source - target) * np.float32(weight), out=out)
        return
    scratch = np.empty(BLOCK, np.float32)
    for start in range(0, target.size, BLOCK):
        block = slice(start, start + BLOCK)
        difference = scratch[: target[block].size]
        np.subtract(source[block], target[block], out=difference)
        np.multiply(difference, np.float32(weight), out=difference)
        np.add(target[block], difference, out=out[block])


def accumulate(total: Vector, source: Vector, weight: float) -> None:
    """Add ``weight · source`` to ``total``, in place."""
    scratch = np.empty(min(BLOCK, total.size), np.float32)
    for start in range(0, total.size, BLOCK):
        block = slice(start, start + BLOCK)
        product = scratch[: total[block].size]
        np.multiply(source[block], np.float32(weight), out=product)
        np.add(total[block], product, out=total[block])


class Weights:
    """The vector that a server owns.

    It is mixed in place for as long as nobody else has seen it. Once a snapshot was handed out, the next mix writes
    its result into a fresh vector in the same single pass: what was sent is never written again, and nothing is ever
    copied just to be sent.
    """

    __slots__ = ("_seen", "_vector")

    def __init__(self, initial: Vector) -> None:
        self._vector = initial
        self._seen = True  # by whoever gave it to us

    def snapshot(self) -> Vector:
        """The vector as it is now, read-only for ever."""
        self._seen = True
        self._vector.flags.writeable = False
        return self._vector

    def mix(self, other: Vector, weight: float) -> None:
        """``W ← W + weight · (other − W)``."""
        out = np.empty_like(self._vector) if self._seen else self._vector
        mix(self._vector, other, weight, out)
        self._vector, self._seen = out, False

    def replace(self, vector: Vector) -> None:
        """Take over a vector that others may hold as well."""
        self._vector, self._seen = vector, True
