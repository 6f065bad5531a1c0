"""Numbers of a model that no gradient moves: statistics of the data, such as the means and variances of BatchNorm.

They stand at the end of the vector. To add up how far they went, with momentum or a gain, would carry them to where no
data ever was, such as a variance below zero. So servers that do that with weights do no more with statistics than to
average them.
"""

from __future__ import annotations

from spyker.vectors import Vector


def weights_alone(vector: Vector, statistics: int) -> Vector:
    """A view of what is no statistic."""
    return vector[: vector.size - statistics]


def without_statistics(step: Vector, statistics: int) -> Vector:
    """A step that leaves them where they are."""
    if not statistics:
        return step
    rest = step.copy()
    rest[-statistics:] = 0
    return rest


def statistics_once(step: Vector, statistics: int, gain: float) -> Vector:
    """A step that moves them just as far as it says when it is made with a gain."""
    if not statistics or gain == 1:
        return step
    same = step.copy()
    same[-statistics:] /= gain
    return same
