"""Comparison of samples, also of those with runs that ended before they reached a target."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from spyker.plots.samples import UNKNOWN, Range, SeedSample


def greater_than(low: float) -> Range:
    """Return the range of a number known only to be greater than ``low``."""
    return low, math.inf


def is_less(a: Range, b: Range) -> bool | None:
    """Return whether ``a`` is less than ``b``, or ``None`` if unknown. Ends of a range are exclusive."""
    if b[1] <= a[0]:
        return False
    open_ended = a[0] < a[1] or b[0] < b[1]
    return True if a[1] < b[0] or (a[1] == b[0] and open_ended) else None


def all_true(answers: Iterable[bool | None]) -> bool | None:
    """Return whether all answers are true, or ``None`` if unknown."""
    known = list(answers)
    return False if False in known else None if None in known else True


def combine(a: SeedSample, b: SeedSample, function: Callable[[float, float], float]) -> SeedSample:
    """Combine two samples seed by seed with a function that is monotonic in both arguments."""
    return SeedSample(tuple(combine_ranges(x, y, function) for x, y in zip(a.ranges, b.ranges, strict=True)))


def combine_ranges(a: Range, b: Range, combine: Callable[[float, float], float]) -> Range:
    """Return the bounds of a combination of two ranges."""
    corners = [combine(x, y) for x in a for y in b]
    return UNKNOWN if any(math.isnan(c) for c in corners) else (min(corners), max(corners))


def percent_less(mine: SeedSample, theirs: SeedSample) -> SeedSample:
    """Return by how many per cent ``mine`` is less than ``theirs``."""
    return combine(mine, theirs, lambda a, b: 100 * (1 - a / b) if b else 0.0)


def ratio(mine: SeedSample, theirs: SeedSample) -> SeedSample:
    """Return ``mine / theirs``."""
    return combine(mine, theirs, lambda a, b: a / b if b else 0.0)
