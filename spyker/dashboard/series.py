"""Series for charts that stay small however long a run is: where there are too many points, they get coarser."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from spyker.dashboard.run_state import RunState, rounded

T = TypeVar("T")
POINTS, BINS, MARKS = 600, 512, 300


class ThinnedSeries(Generic[T]):
    """Every n-th of what was added, and the last; n doubles whenever there are more than twice the points wanted."""

    def __init__(self, points: int) -> None:
        self._points, self._every, self._count = points, 1, 0
        self._kept: list[T] = []
        self._last: T | None = None

    def add(self, point: T) -> None:
        """One more."""
        if self._count % self._every == 0:
            self._kept.append(point)
            self._last = None
        else:
            self._last = point
        self._count += 1
        if len(self._kept) > 2 * self._points:
            self._kept, self._every = self._kept[::2], 2 * self._every

    @property
    def last(self) -> T | None:
        """What was added last."""
        return self._kept[-1] if self._last is None and self._kept else self._last

    def replace(self, point: T) -> None:
        """Something else in its place."""
        if self._last is None and self._kept:
            self._kept[-1] = point
        else:
            self._last = point

    def points(self) -> list[T]:
        """What is left."""
        return [*self._kept, *([] if self._last is None else [self._last])]


class TimeBins:
    """Ages, queues and their like over equal stretches of time, which double when the run outgrows them."""

    def __init__(self, servers: int, learners: Sequence[int], width: float) -> None:
        """The ages of ``learners`` alone count in how far they are apart: a cloud has none."""
        self.width, self._servers, self._learners = width, servers, learners
        self.ages: list[list[float]] = []  # at the end of each
        self.queues: list[list[int]] = []  # the longest
        self.spreads: list[float] = []  # the largest
        self.bytes: list[int] = []
        self.updates: list[int] = []

    def note(self, state: RunState) -> None:
        """Take note of a state that has just changed."""
        at = int(state.t / self.width)
        while at >= 2 * BINS:
            self._halve()
            at = int(state.t / self.width)
        while len(self.spreads) <= at:
            self.ages.append(self.ages[-1][:] if self.ages else [0.0] * self._servers)
            self.queues.append([0] * self._servers)
            self.spreads.append(self.spreads[-1] if self.spreads else 0.0)
            self.bytes.append(state.bytes)
            self.updates.append(state.updates)

    def server(self, state: RunState, server: int) -> None:
        """What a fact about one server may have changed."""
        self.note(state)
        if not 0 <= server < self._servers:
            return
        found = state.servers[server]
        at = len(self.spreads) - 1
        self.ages[at][server] = found.age
        self.queues[at][server] = max(self.queues[at][server], found.queue)
        ages = [self.ages[at][learner] for learner in self._learners]
        self.spreads[at] = max(ages) - min(ages) if ages else 0.0
        self.bytes[at], self.updates[at] = state.bytes, state.updates

    def _halve(self) -> None:
        self.width *= 2
        if len(self.spreads) % 2:
            self.ages.append(self.ages[-1])
            self.queues.append(self.queues[-1])
            self.spreads.append(self.spreads[-1])
            self.bytes.append(self.bytes[-1])
            self.updates.append(self.updates[-1])
        self.queues = [[max(pair) for pair in zip(a, b, strict=True)] for a, b in pairs(self.queues)]
        self.spreads = [max(pair) for pair in pairs(self.spreads)]
        self.ages = [row[:] for row in self.ages[1::2]]
        self.bytes, self.updates = self.bytes[1::2], self.updates[1::2]

    def payload(self, now: float) -> dict[str, Any]:
        """By series; the last bin ends at the present."""
        count = len(self.spreads)
        return {
            "t": [round(min((i + 1) * self.width, max(now, i * self.width)), 6) for i in range(count)],
            "ages": [[round(row[i], 3) for row in self.ages] for i in range(self._servers)],
            "queues": [[row[i] for row in self.queues] for i in range(self._servers)],
            "spread": [round(value, 3) for value in self.spreads],
            "bytes": list(self.bytes),
            "updates": list(self.updates),
        }


def pairs(column: list[T]) -> list[tuple[T, T]]:
    """Neighbours, two by two."""
    return list(zip(column[::2], column[1::2], strict=True))


def score_point(state: RunState, t: float) -> list[Any]:
    """One evaluation: time, mean, mean of the weights, and each server."""
    return [round(t, 6), rounded(state.mean), rounded(state.averaged), *(rounded(s.score) for s in state.servers)]
