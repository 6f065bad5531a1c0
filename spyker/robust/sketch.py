"""Count sketches: a vector as a few hundred numbers that preserve angles and norms.

The angle between two vectors is about that between their sketches, and the difference of two sketches is the sketch of
the difference. Each entry of the vector is added to one of the numbers, with a sign that was drawn once. Of a large
vector only some blocks are read, so that a sketch costs no more than one pass over a million entries; it is then
scaled, so that its norm is about that of the whole vector.
"""

from __future__ import annotations

import math

import numpy as np

from spyker.vectors import Vector

NUMBERS = 480  # the error of a cosine is then 1/√480, about 0.05; and NumPy keeps its lock for less than 500
LOOKED_AT, STRETCH = 1 << 20, 1 << 13  # entries that are read at most, and those of one block
SIGNS = 0x51675  # seed of the signs


class Sketcher:
    """Makes sketches of vectors of one size."""

    def __init__(self, size: int) -> None:
        self.size = size
        stretches = LOOKED_AT // STRETCH
        self._starts = [i * (size - STRETCH) // (stretches - 1) for i in range(stretches)] if size > LOOKED_AT else []
        looked_at = min(size, LOOKED_AT)
        self._scale = np.float32(math.sqrt(size / looked_at)) if looked_at else np.float32(1)
        self._whole = whole = looked_at // NUMBERS * NUMBERS  # the rest is less than a row
        signs = np.random.default_rng(SIGNS).choice(np.array([-1, 1], np.float32), looked_at)
        self._signs, self._last_signs = signs[:whole].reshape(-1, NUMBERS), signs[whole:]

    def sketch(self, vector: Vector) -> Vector:
        """Return the sketch of a vector."""
        seen = vector
        if self._starts:
            seen = np.concatenate([vector[start : start + STRETCH] for start in self._starts])
        whole = self._whole
        with np.errstate(over="ignore", invalid="ignore"):
            # in one pass, without a vector for the products
            total: Vector = np.einsum("rn,rn->n", seen[:whole].reshape(-1, NUMBERS), self._signs)
            if seen.size > whole:
                total[: seen.size - whole] += seen[whole:] * self._last_signs
            if self._starts:
                total *= self._scale
        return total


class Direction:
    """A sketch in double precision, with its norm."""

    __slots__ = ("exact", "norm")

    def __init__(self, sketch: Vector) -> None:
        self.exact = exact = sketch.astype(np.float64)
        self.norm = math.sqrt(exact.dot(exact))

    def cosine(self, other: Direction) -> float:
        """Estimate the cosine of the angle between two vectors; 0 if one of them has no length."""
        norms = self.norm * other.norm
        return float(self.exact.dot(other.exact)) / norms if norms > 0 else 0.0


def size(sketch: Vector) -> float:
    """Estimate the norm of a vector from its sketch."""
    return Direction(sketch).norm
