"""The arithmetic on weight vectors: one pass over memory each, in blocks that stay in the processor's cache."""

from __future__ import annotations

import numpy as np

from spyker.protocol.messages import Vector

BLOCK = 32_768  # elements; a block of target, source and scratch fits in a second-level cache


def mix(target: Vector, source: Vector, weight: float, out: Vector) -> None:
    """Write ``target + weight · (source − target)`` into ``out``, which may be ``target`` itself."""
    scratch = np.empty(min(BLOCK, target.size), np.float32)
    for start in range(0, target.size, BLOCK):
        stop = start + BLOCK
        t, s, o = target[start:stop], source[start:stop], out[start:stop]
        difference = scratch[: t.size]
        np.subtract(s, t, out=difference)
        np.multiply(difference, weight, out=difference)
        np.add(t, difference, out=o)


def accumulate(total: Vector, source: Vector, weight: float) -> None:
    """Add ``weight · source`` to ``total``, in place."""
    scratch = np.empty(min(BLOCK, total.size), np.float32)
    for start in range(0, total.size, BLOCK):
        stop = start + BLOCK
        t, s = total[start:stop], source[start:stop]
        product = scratch[: t.size]
        np.multiply(s, weight, out=product)
        np.add(t, product, out=t)


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
