"""Series for charts, of bounded size: longer runs have coarser points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from spyker.dashboard.run_state import RunState, rounded

T = TypeVar("T")
POINTS, BINS, MARKS = 600, 512, 300


class ThinnedSeries(Generic[T]):
    """Every n-th point and the last; n doubles when there are more than twice the wanted number of points."""

    def __init__(self, points: int) -> None:
        self._points, self._every, self._count = points, 1, 0
        self._kept: list[T] = []
        self._last: T | None = None

    def add(self, point: T) -> None:
        """Add a point."""
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
        """The last point."""
        return self._kept[-1] if self._last is None and self._kept else self._last

    def replace(self, point: T) -> None:
        """Replace the last point."""
        if self._last is None and self._kept:
            self._kept[-1] = point
        else:
            self._last = point

    def points(self) -> list[T]:
        """Return the points."""
        return [*self._kept, *([] if self._last is None else [self._last])]


class TimeBins:
    """Ages, queues and counts in time bins of equal width, which doubles when there are too many bins."""

    def __init__(self, servers: int, learners: Sequence[int], width: float) -> None:
        """Create empty bins; the spread of ages covers only ``learners``, because a cloud has no age."""
        self.width, self._servers = width, servers
        self._learners = [learner for learner in learners if 0 <= learner < servers]
        self.ages: list[list[float]] = []  # at the end of each bin
        self.queues: list[list[int]] = []  # maximum
        self.spreads: list[float] = []  # maximum
        self.bytes: list[int] = []
        self.updates: list[int] = []

    def note(self, state: RunState) -> None:
        """Append bins up to the time of the state."""
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
        """Update the current bin after a fact about a server."""
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
        """Return the JSON for the browser; the last bin ends at ``now``."""
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
    """Return consecutive pairs."""
    return list(zip(column[::2], column[1::2], strict=True))


def score_point(state: RunState, t: float) -> list[Any]:
    """Return an evaluation: time, mean score, score of the averaged model, and score of each server."""
    return [round(t, 6), rounded(state.mean), rounded(state.averaged), *(rounded(s.score) for s in state.servers)]
