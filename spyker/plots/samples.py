"""Samples with one number per seed, for tables and claims.

A run that ends before it reaches a target gives a lower bound of the time to target. A sample therefore has a range per
seed, which is a single number if it was measured, and a comparison has a result whenever the ranges decide it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

ROUNDING = 1e-9
# Quantiles of Student's t for 95 % intervals, by degrees of freedom from 1; the last serves for all larger ones.
STUDENT = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23)
Range: TypeAlias = tuple[float, float]
UNKNOWN: Range = (-math.inf, math.inf)


@dataclass(frozen=True, slots=True)
class SeedSample:
    """Ranges of a measurement, one per seed; both ends are equal if it was measured."""

    ranges: tuple[Range, ...]

    @property
    def numbers(self) -> tuple[float | None, ...]:
        """The measured numbers; ``None`` for a seed without one, such as a target that was never reached."""
        return tuple(None if low < high else low for low, high in self.ranges)

    @property
    def whole(self) -> bool:
        """Whether all seeds have a number."""
        return bool(self.numbers) and None not in self.numbers

    @property
    def known(self) -> list[float]:
        """The numbers of the seeds that have one."""
        return [n for n in self.numbers if n is not None]

    @property
    def mean(self) -> float | None:
        """The mean if all seeds have a number: without the failed seeds it would be biased."""
        return statistics.fmean(self.known) if self.whole else None

    @property
    def mean_range(self) -> Range:
        """Bounds of the mean."""
        if not self.ranges:
            return UNKNOWN
        low, high = (statistics.fmean(ends) for ends in zip(*self.ranges, strict=True))
        return low, high

    @property
    def spread(self) -> float | None:
        """The standard deviation over seeds, if there are several."""
        return statistics.stdev(self.known) if self.whole and len(self.numbers) > 1 else None

    @property
    def interval(self) -> Range | None:
        """The 95 % confidence interval of the mean, if there are several seeds."""
        if self.mean is None or self.spread is None:
            return None
        freedom = len(self.numbers) - 1
        half = STUDENT[min(freedom, len(STUDENT)) - 1] * self.spread / math.sqrt(len(self.numbers))
        return self.mean - half, self.mean + half

    def text(self, form: str = ".4g", unit: str = "") -> str:
        """Format mean and standard deviation, or the bound and the number of measured seeds."""
        if self.mean is None:
            low, high = self.mean_range
            bound = f"> {low:{form}}{unit}" if low > -math.inf else f"< {high:{form}}{unit}" if high < math.inf else "–"
            return f"{bound} ({len(self.known)} of {len(self.numbers)} seeds)" if self.known else bound
        digits = form if form.endswith("f") else ".2g" if (self.spread or 0) < 100 else ".0f"
        spread = "" if self.spread is None else f" ± {self.spread:{digits}}"
        mean = 0.0 if abs(self.mean) < ROUNDING else self.mean
        return f"{mean:{form}}{spread}{unit}"

    def at_most(self, limit: float) -> list[bool | None]:
        """Return for each seed whether it is at most ``limit``, or ``None`` if unknown."""
        return [True if high <= limit else False if low >= limit else None for low, high in self.ranges]


def sample(numbers: Iterable[float | Range | None]) -> SeedSample:
    """Make a sample of numbers, ranges and missing values."""
    return SeedSample(tuple(UNKNOWN if n is None else n if isinstance(n, tuple) else (n, n) for n in numbers))
