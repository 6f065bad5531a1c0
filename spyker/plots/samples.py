"""One number per seed, and what tables and claims make of them.

A run that ends before it reaches a target tells something all the same: the time is beyond its end. So what is known
of a seed is a range, which is a single number where something was measured, and comparisons are decided wherever the
ranges decide them.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

NOTHING = 1e-9  # what is left of sums that should be zero
# Student's t for an interval of 95 %, by degrees of freedom from 1; beyond the last it hardly changes.
STUDENT = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23)
Range: TypeAlias = tuple[float, float]
UNKNOWN: Range = (-math.inf, math.inf)


@dataclass(frozen=True, slots=True)
class SeedSample:
    """A measurement, once per seed: between which two numbers it lies. They are equal where it was measured."""

    ranges: tuple[Range, ...]

    @property
    def numbers(self) -> tuple[float | None, ...]:
        """What was measured; ``None`` where there was nothing to measure, such as a target never reached."""
        return tuple(None if low < high else low for low, high in self.ranges)

    @property
    def whole(self) -> bool:
        """Whether every seed has a number."""
        return bool(self.numbers) and None not in self.numbers

    @property
    def known(self) -> list[float]:
        """The numbers that there are."""
        return [n for n in self.numbers if n is not None]

    @property
    def mean(self) -> float | None:
        """The mean, if every seed has a number: a mean of those that succeeded would flatter."""
        return statistics.fmean(self.known) if self.whole else None

    @property
    def mean_range(self) -> Range:
        """Between what the mean lies."""
        if not self.ranges:
            return UNKNOWN
        low, high = (statistics.fmean(ends) for ends in zip(*self.ranges, strict=True))
        return low, high

    @property
    def spread(self) -> float | None:
        """The standard deviation over the seeds, if there are several."""
        return statistics.stdev(self.known) if self.whole and len(self.numbers) > 1 else None

    @property
    def interval(self) -> Range | None:
        """The mean's interval of 95 %, if there are several seeds."""
        if self.mean is None or self.spread is None:
            return None
        freedom = len(self.numbers) - 1
        half = STUDENT[min(freedom, len(STUDENT)) - 1] * self.spread / math.sqrt(len(self.numbers))
        return self.mean - half, self.mean + half

    def text(self, form: str = ".4g", unit: str = "") -> str:
        """For a table: the mean and the spread, or its bound and how many seeds got there."""
        if self.mean is None:
            low, high = self.mean_range
            bound = f"> {low:{form}}{unit}" if low > -math.inf else f"< {high:{form}}{unit}" if high < math.inf else "–"
            return f"{bound} ({len(self.known)} of {len(self.numbers)} seeds)" if self.known else bound
        digits = form if form.endswith("f") else ".2g" if (self.spread or 0) < 100 else ".0f"
        spread = "" if self.spread is None else f" ± {self.spread:{digits}}"
        mean = 0.0 if abs(self.mean) < NOTHING else self.mean
        return f"{mean:{form}}{spread}{unit}"

    def with_(self, other: SeedSample, combine: Callable[[float, float], float]) -> SeedSample:
        """Combine two measurements seed by seed, by a function that only rises or only falls with either."""
        return SeedSample(tuple(span(a, b, combine) for a, b in zip(self.ranges, other.ranges, strict=True)))

    def at_most(self, limit: float) -> list[bool | None]:
        """For each seed, whether it is at most this; ``None`` where that is not known."""
        return [True if high <= limit else False if low >= limit else None for low, high in self.ranges]


def span(a: Range, b: Range, combine: Callable[[float, float], float]) -> Range:
    """Between what the combination of two numbers lies."""
    corners = [combine(x, y) for x in a for y in b]
    return UNKNOWN if any(math.isnan(c) for c in corners) else (min(corners), max(corners))


def sample(numbers: Iterable[float | Range | None]) -> SeedSample:
    """Numbers as a sample."""
    return SeedSample(tuple(UNKNOWN if n is None else n if isinstance(n, tuple) else (n, n) for n in numbers))


def beyond(low: float) -> Range:
    """What is known of a number that is larger than this."""
    return low, math.inf


def before(a: Range, b: Range) -> bool | None:
    """Whether ``a`` is the smaller one; ``None`` where that is not known. Ends belong to numbers only."""
    if b[1] <= a[0]:
        return False
    open_ended = a[0] < a[1] or b[0] < b[1]
    return True if a[1] < b[0] or (a[1] == b[0] and open_ended) else None


def every(answers: Iterable[bool | None]) -> bool | None:
    """Whether all are true; ``None`` where that is not known."""
    known = list(answers)
    return False if False in known else None if None in known else True


def less(mine: SeedSample, theirs: SeedSample) -> SeedSample:
    """How much less ``mine`` is than ``theirs``, in per cent."""
    return mine.with_(theirs, lambda a, b: 100 * (1 - a / b) if b else 0.0)


def times(mine: SeedSample, theirs: SeedSample) -> SeedSample:
    """How many times ``theirs`` ``mine`` is."""
    return mine.with_(theirs, lambda a, b: a / b if b else 0.0)
