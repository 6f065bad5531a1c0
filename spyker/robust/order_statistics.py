"""Numbers in their order, kept while they change: medians, and who is on the other side of one."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping
from typing import Any

from spyker.protocol.state import Stateful

ENOUGH = 5  # clients whose habits are known, before anything is common
MOST = 0.8  # a habit is common if so many have it
ALIKE = 0.5  # so much of the median is a habit like it; on the other side, its opposite


class OrderStatistics:
    """Some numbers, of which each has a key and may change."""

    __slots__ = ("_sorted", "numbers")

    def __init__(self, numbers: Mapping[int, float] | None = None) -> None:
        self.numbers = dict(numbers or {})
        self._sorted = sorted(self.numbers.values())

    def put(self, key: int, number: float) -> None:
        """A number is this now."""
        self.drop(key)
        self.numbers[key] = number
        insort(self._sorted, number)

    def drop(self, key: int) -> None:
        """A number counts no more, if it did."""
        before = self.numbers.pop(key, None)
        if before is not None:
            del self._sorted[bisect_left(self._sorted, before)]

    def at(self, share: float) -> float:
        """The number that so many are not above; 0 of nothing."""
        return self._sorted[int(share * (len(self._sorted) - 1))] if self._sorted else 0.0

    @property
    def median(self) -> float:
        """The one in the middle, or the lower of two."""
        return self.at(0.5)


class OutlierStatistic(Stateful):
    """A number that says something about an answer: its mean for each client, and who is unlike all others."""

    def __init__(self, window: int, known: int, clear: float) -> None:
        """A habit is the mean of about ``window`` numbers, and ``known`` after so many of them.

        That of most must be at least ``clear`` for anybody to be unlike it.
        """
        self.window, self.least, self.clear = window, known, clear
        self.means: dict[int, float] = {}
        self.counts: dict[int, int] = {}
        self.known = OrderStatistics()  # the means of those with enough answers

    def compare(self, client: int, number: float | None) -> int:
        """Take a number in, if there is one, and compare the client's mean with those of the others.

        Returns 1 if its client does what most do, -1 if it does the opposite, 0 if nobody can say.
        """
        if number is not None:
            count = self.counts[client] = min(self.window, self.counts.get(client, 0) + 1)
            before = self.means.get(client, 0.0)
            self.means[client] = before + (number - before) / count
            if count >= self.least:
                self.known.put(client, self.means[client])
        mean = self.known.numbers.get(client)
        if mean is None:
            return 0
        median = self.known.median
        side = 1.0 if median > 0 else -1.0
        least = self.known.at(1 - MOST if median > 0 else MOST)
        if len(self.known.numbers) < ENOUGH or side * least < self.clear or abs(mean) < ALIKE * abs(median):
            return 0
        return 1 if side * mean > 0 else -1

    def forget(self, client: int) -> None:
        """Know nothing of a client."""
        self.means.pop(client, None)
        self.counts.pop(client, None)
        self.known.drop(client)

    def state(self) -> Any:
        """For a checkpoint."""
        return [self.means, self.counts, self.known.numbers]

    def restore(self, kept: Any) -> None:
        """Go on from there."""
        self.means, self.counts, known = kept
        self.known = OrderStatistics(known)
