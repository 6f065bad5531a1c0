"""Arithmetic on float32 weight vectors: one pass over memory each, in blocks that fit the processor's cache."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Vector: TypeAlias = npt.NDArray[np.float32]

SUMMED = 8_192  # elements that NumPy sums in one step when it converts to float64
BLOCK = 65_536  # elements; blocks of three vectors together fit in a second-level cache


def blocks(*vectors: Vector) -> Iterator[tuple[Vector, ...]]:
    """Yield the vectors block by block, then the remainder."""
    whole = vectors[0].size // BLOCK * BLOCK
    yield from zip(*(vector[:whole].reshape(-1, BLOCK) for vector in vectors), strict=True)
    if whole < vectors[0].size:
        yield tuple(vector[whole:] for vector in vectors)


class LazyVector:
    """A vector that is computed block by block when it is read, so that it takes no memory."""

    __slots__ = ("_compute", "size")

    def __init__(self, size: int, compute: Callable[[slice], Vector]) -> None:
        """``compute`` returns a part of the vector: a new array, or a view that the caller does not modify."""
        self.size, self._compute = size, compute

    def __getitem__(self, part: slice) -> Vector:
        return self._compute(part)


def parts(size: int) -> Iterator[slice]:
    """Yield the blocks of a vector as slices."""
    return (slice(start, min(start + BLOCK, size)) for start in range(0, size, BLOCK))


def scaled_sum(vector: Vector, factor: float, other: Vector, weight: float) -> LazyVector:
    """Return ``factor · vector + weight · other`` without computing it yet."""
    of_vector, of_other = np.float32(factor), np.float32(weight)

    def compute(part: slice) -> Vector:
        result = vector[part] * of_vector
        np.add(result, other[part] * of_other, result)
        return result

    return LazyVector(vector.size, compute)


def difference(vector: Vector, other: Vector) -> LazyVector:
    """Return ``vector − other`` without computing it yet."""
    return LazyVector(vector.size, lambda part: vector[part] - other[part])


def mix(target: Vector, source: Vector, weight: float, out: Vector) -> None:
    """Write ``target + weight · (source − target)`` into ``out``, which may be ``target`` itself."""
    factor = np.array(weight, np.float32)  # a scalar would be converted again in each block
    # The difference goes to out where it can: one array fewer in the cache.
    scratch = np.empty(min(BLOCK, target.size), np.float32) if out is target else None
    for t, s, o in blocks(target, source, out) if target.size > BLOCK else ((target, source, out),):
        difference = o if scratch is None else scratch[: t.size]
        np.subtract(s, t, difference)
        np.multiply(difference, factor, difference)
        np.add(t, difference, o)


def accumulate(total: Vector, source: Vector | LazyVector, weight: float, out: Vector | None = None) -> None:
    """Write ``total + weight · source`` into ``out``; by default, in place."""
    factor = np.float32(weight)
    scratch = np.empty(min(BLOCK, total.size), np.float32)
    out = total if out is None else out
    if isinstance(source, LazyVector):
        for part in parts(total.size):
            np.add(total[part], np.multiply(source[part], factor, scratch[: part.stop - part.start]), out[part])
        return
    if total.size <= BLOCK:
        np.add(total, np.multiply(source, factor, scratch), out)
        return
    for t, s, o in blocks(total, source, out):
        product = scratch[: t.size]
        np.multiply(s, factor, product)
        np.add(t, product, o)


def average(models: Sequence[Vector], out: Vector | None = None) -> Vector:
    """Return the mean of weight vectors, in ``out`` if it is given."""
    total = np.empty(models[0].shape, np.float32) if out is None else out
    total.fill(0)
    for model in models:
        accumulate(total, model, 1 / len(models))
    return total


def length(vector: Vector | LazyVector) -> float:
    """Return the Euclidean norm; infinite if a square overflows float32.

    The sum does not use BLAS, whose result depends on the number of threads.
    """
    total, scratch = 0.0, np.empty(min(BLOCK, vector.size), np.float32)
    with np.errstate(over="ignore"):
        for part in parts(vector.size):
            block = vector[part]
            squares = np.square(block, scratch[: block.size])
            for start in range(0, block.size, SUMMED):  # as NumPy does, so that every bit is the same
                total += float(squares[start : start + SUMMED].sum(dtype=np.float64))
    return math.sqrt(total)


def is_finite(vector: Vector) -> bool:
    """Return whether all elements are finite."""
    if vector.size <= 64:  # a call of NumPy takes longer
        return math.isfinite(sum(vector.tolist()))
    # A finite sum of squares needs no second look. It may overflow although all elements are finite.
    return math.isfinite(np.vdot(vector, vector)) or all(bool(np.isfinite(block).all()) for (block,) in blocks(vector))


def distance(vector: Vector, other: Vector | None) -> float:
    """Return the Euclidean distance, from zero if ``other`` is ``None``; infinite if a square overflows float32.

    Unlike BLAS, the result is the same with any number of threads.
    """
    if other is None:
        pieces = blocks(vector) if vector.size > BLOCK else ((vector,),)
        return math.sqrt(sum(float(np.einsum("i,i", v, v)) for (v,) in pieces))
    with np.errstate(over="ignore", invalid="ignore"):
        if vector.size <= BLOCK:
            difference = vector - other
            return math.sqrt(np.einsum("i,i", difference, difference))
        total, scratch = 0.0, np.empty(BLOCK, np.float32)
        for v, o in blocks(vector, other):
            difference = np.subtract(v, o, scratch[: v.size])
            total += float(np.einsum("i,i", difference, difference))
    return math.sqrt(total)


def dot(vector: Vector | LazyVector, other: Vector | LazyVector) -> float:
    """Return the inner product; independent of the number of threads."""
    return sum(float(np.einsum("i,i", vector[part], other[part])) for part in parts(vector.size))


Mix: TypeAlias = Callable[[Vector, Vector, float, Vector], None]
"""A function with the signature and result of :func:`mix`."""
