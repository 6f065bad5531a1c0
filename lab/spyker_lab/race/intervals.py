"""Means and paired ratios with 95 % confidence intervals by Student's t; for ratios on logarithms.

If a target was not reached, the time counts with the horizon, and the estimate is marked as a bound.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from scipy.stats import t as student

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class IntervalEstimate:
    """A number and its confidence interval, which is ``None`` for a single seed."""

    value: float
    low: float | None
    high: float | None
    mark: str = ""
    """``>`` or ``<`` for a bound, if a target was not reached; ``?`` if neither side reached it."""

    def around(self, unit: str = "") -> str:
        """Format as value ± half of the interval; a bound has no interval."""
        if self.mark:
            return f"{self.mark} {self.value:.3g}{unit}"
        spread = "" if self.low is None else f" ± {self.value - self.low:.2g}"
        return f"{self.value:.3g}{spread}{unit}"

    def between(self) -> str:
        """Format as value and interval; a bound has no interval."""
        if self.mark == "?":
            return "?"
        if self.mark or self.low is None or self.high is None:
            return f"{self.mark} {self.value:.2f}".strip()
        return f"{self.value:.2f} ({self.low:.2f}–{self.high:.2f})"


@dataclass(frozen=True, slots=True)
class SeedTimes:
    """A time per seed; ``None`` if the target was not reached within the horizon."""

    numbers: tuple[float | None, ...]
    horizon: float

    @property
    def filled(self) -> list[float]:
        """The times, with the horizon for targets that were not reached."""
        return [self.horizon if n is None else n for n in self.numbers]

    @property
    def whole(self) -> bool:
        """Whether all seeds reached the target."""
        return None not in self.numbers

    def mean(self) -> IntervalEstimate:
        """Return the mean time."""
        return estimate(self.filled, "" if self.whole else ">")


def interval(numbers: Sequence[float]) -> tuple[float, float | None]:
    """Return the mean, and half of its confidence interval if there are several numbers."""
    mean = statistics.fmean(numbers)
    if len(numbers) < 2:
        return mean, None
    quantile = float(student.ppf((1 + CONFIDENCE) / 2, len(numbers) - 1))
    return mean, quantile * statistics.stdev(numbers) / math.sqrt(len(numbers))


def estimate(numbers: Sequence[float], mark: str = "") -> IntervalEstimate:
    """Return the mean with its confidence interval."""
    value, half = interval(numbers)
    return (
        IntervalEstimate(value, None, None, mark)
        if half is None
        else IntervalEstimate(value, value - half, value + half, mark)
    )


def ratio(ours: SeedTimes, theirs: SeedTimes) -> IntervalEstimate:
    """Return ``ours / theirs``, the geometric mean over common seeds."""
    pairs = list(zip(ours.numbers, theirs.numbers, strict=False))
    logs = [math.log((ours.horizon if a is None else a) / (theirs.horizon if b is None else b)) for a, b in pairs]
    log = estimate(logs)
    late, open_end = any(a is None for a, _ in pairs), any(b is None for _, b in pairs)
    mark = "?" if late and open_end else ">" if late else "<" if open_end else ""
    low, high = (None if end is None else math.exp(end) for end in (log.low, log.high))
    return IntervalEstimate(math.exp(log.value), low, high, mark)


def difference(ours: SeedTimes, theirs: SeedTimes) -> IntervalEstimate:
    """Return ``ours - theirs`` in seconds, the mean over common seeds."""
    pairs = list(zip(ours.filled, theirs.filled, strict=False))
    return estimate([a - b for a, b in pairs], ratio(ours, theirs).mark)
