"""Medians and quantiles of values that change, and outliers among the means of clients."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping
from typing import Any

MIN_CLIENTS = 5  # with a known mean, before any client can be an outlier
MAJORITY = 0.6  # share of clients that must agree for the others to be outliers
SIMILAR = 0.5  # of the median: a mean closer to zero is neither on its side nor on the opposite one


class OrderStatistics:
    """A sorted collection of values, one per key."""

    __slots__ = ("_sorted", "numbers")

    def __init__(self, numbers: Mapping[int, float] | None = None) -> None:
        self.numbers = dict(numbers or {})
        self._sorted = sorted(self.numbers.values())

    def put(self, key: int, number: float) -> None:
        """Set the value of a key."""
        before = self.numbers.get(key)
        if before == number:
            return
        if before is not None:
            del self._sorted[bisect_left(self._sorted, before)]
        self.numbers[key] = number
        insort(self._sorted, number)

    def drop(self, key: int) -> None:
        """Remove a key, if it is there."""
        before = self.numbers.pop(key, None)
        if before is not None:
            del self._sorted[bisect_left(self._sorted, before)]

    def at(self, share: float) -> float:
        """Return the quantile at ``share``, from 0 (minimum) to 1 (maximum); 0 if there are no values."""
        return self._sorted[int(share * (len(self._sorted) - 1))] if self._sorted else 0.0

    @property
    def median(self) -> float:
        """The median; of an even number of values, the lower of the two in the middle."""
        return self.at(0.5)


class OutlierStatistic:
    """A running mean per client, and the clients whose mean has the opposite sign of nearly all others."""

    def __init__(self, window: int, known: int, clear: float) -> None:
        """Create a statistic without values.

        Args:
            window: number of values that the running mean of a client is taken over, about.
            known: number of values after which the mean of a client is compared with others.
            clear: a client can be an outlier only if the means of the majority are at least this far from zero.

        """
        self.window, self.least, self.clear = window, known, clear
        self.means: dict[int, float] = {}
        self.counts: dict[int, int] = {}
        self.known = OrderStatistics()  # the means of clients with enough values

    def compare(self, client: int, number: float | None) -> int:
        """Add a value, if there is one, and compare the client's mean with those of the others.

        Args:
            client: the client of the value.
            number: the value; None leaves the mean as it is.

        Returns:
            1 if the client agrees with the majority, -1 if it is an outlier, 0 if undecided.

        """
        if number is not None:
            count = self.counts[client] = min(self.window, self.counts.get(client, 0) + 1)
            before = self.means.get(client, 0.0)
            self.means[client] = before + (number - before) / count
            if count >= self.least:
                self.known.put(client, self.means[client])
        mean = self.known.numbers.get(client)
        if mean is None or len(self.known.numbers) < MIN_CLIENTS:
            return 0
        median = self.known.median
        side = 1.0 if median > 0 else -1.0
        least = self.known.at(1 - MAJORITY if median > 0 else MAJORITY)
        if side * least < self.clear or abs(mean) < SIMILAR * abs(median):
            return 0
        return 1 if side * mean > 0 else -1

    def forget(self, client: int) -> None:
        """Drop the values of a client."""
        self.means.pop(client, None)
        self.counts.pop(client, None)
        self.known.drop(client)

    def state(self) -> Any:
        """Return the state for a checkpoint."""
        return [self.means, self.counts, self.known.numbers]

    def restore(self, state: Any) -> None:
        """Restore the state of a checkpoint."""
        self.means, self.counts, known = state
        self.known = OrderStatistics(known)
