"""Buffers: the numbers of a model that no gradient moves, such as the running means and variances of BatchNorm.

Buffers stand at the end of the weight vector. Momentum or a gain would extrapolate them to values that no data
produced, such as a negative variance. Algorithms that extrapolate therefore only average buffers.
"""

from __future__ import annotations

from spyker.vectors import Vector


def parameters_only(vector: Vector, buffers: int) -> Vector:
    """Return a view of ``vector`` without its last ``buffers`` numbers."""
    return vector[: vector.size - buffers]


def without_buffers(step: Vector, buffers: int) -> Vector:
    """Return ``step`` with zeros for the buffers, so that adding it leaves them unchanged."""
    if not buffers:
        return step
    rest = step.copy()
    rest[-buffers:] = 0
    return rest


def buffers_once(step: Vector, buffers: int, gain: float) -> Vector:
    """Return ``step`` with its buffers divided by ``gain``, so that ``gain * step`` moves them exactly once."""
    if not buffers or gain == 1:
        return step
    same = step.copy()
    same[-buffers:] /= gain
    return same
