"""One number per seed, and what tables and claims make of them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass

NOTHING = 1e-9  # what is left of sums that should be zero


@dataclass(frozen=True, slots=True)
class Sample:
    """A measurement, once per seed; ``None`` where there was nothing to measure, such as a target never reached."""

    numbers: tuple[float | None, ...]

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
    def spread(self) -> float | None:
        """The standard deviation over the seeds, if there are several."""
        return statistics.stdev(self.known) if self.whole and len(self.numbers) > 1 else None

    def text(self, form: str = ".4g", unit: str = "") -> str:
        """For a table: the mean and the spread, or how many seeds got there."""
        if self.mean is None:
            return f"– ({len(self.known)} of {len(self.numbers)} seeds)" if self.known else "–"
        spread = "" if self.spread is None else f" ± {self.spread:{'.2g' if self.spread < 100 else '.0f'}}"
        mean = 0.0 if abs(self.mean) < NOTHING else self.mean
        return f"{mean:{form}}{spread}{unit}"

    def with_(self, other: Sample, combine: Callable[[float, float], float]) -> Sample:
        """Combine two measurements seed by seed."""
        pairs = zip(self.numbers, other.numbers, strict=True)
        return Sample(tuple(None if a is None or b is None else combine(a, b) for a, b in pairs))


def sample(numbers: Iterable[float | None]) -> Sample:
    """Numbers as a sample."""
    return Sample(tuple(numbers))


def less(mine: Sample, theirs: Sample) -> Sample:
    """How much less ``mine`` is than ``theirs``, in per cent."""
    return mine.with_(theirs, lambda a, b: 100 * (1 - a / b) if b else 0.0)


def times(mine: Sample, theirs: Sample) -> Sample:
    """How many times ``theirs`` ``mine`` is."""
    return mine.with_(theirs, lambda a, b: a / b if b else 0.0)
