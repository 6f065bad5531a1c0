"""Virtual time: a queue of events. Ties are broken by the order in which events were scheduled."""

from __future__ import annotations

import gc
import heapq
from collections.abc import Callable
from typing import Any, TypeAlias

Event: TypeAlias = tuple[float, int, Callable[[Any, Any], None], Any, Any]


class StopRequest:
    """A request to stop a run early: set ``requested``, for example in a signal handler."""

    requested = False


class Clock:
    """Executes events in the order of time, up to ``end``.

    This is a calendar queue: time is divided into slices. Only events of the current slice are in a heap; later events
    are in an unordered list per slice. The cost per event therefore hardly grows with their number.

    Args:
        end: virtual time at which the clock stops.
        nodes: approximate number of nodes, which sets the width of slices; it only affects speed.

    """

    __slots__ = ("_current", "_numbers", "_per_second", "_scheduled", "_slice", "_slices", "end", "happened", "now")

    def __init__(self, end: float, nodes: int = 100) -> None:
        self.now = 0.0
        self.end = end
        self.happened = 0
        self._per_second = max(1.0, nodes / 10)  # a node has about ten events per second
        self._slice = 0
        self._current: list[Event] = []  # a heap: events up to the end of the current slice
        self._slices: dict[int, list[Event]] = {}  # later events, unordered
        self._numbers: list[int] = []  # a heap: the numbers of later slices
        self._scheduled = 0

    def at(self, time: float, do: Callable[[Any, Any], None], a: Any, b: Any) -> None:
        """Schedule ``do(a, b)`` at a time that is not in the past."""
        if time <= self.end:
            self._scheduled = scheduled = self._scheduled + 1
            number = int(time * self._per_second)
            if number <= self._slice:
                heapq.heappush(self._current, (time, scheduled, do, a, b))
            elif number in self._slices:
                self._slices[number].append((time, scheduled, do, a, b))
            else:
                self._slices[number] = [(time, scheduled, do, a, b)]
                heapq.heappush(self._numbers, number)

    def finish(self) -> None:
        """End now, and drop all scheduled events."""
        self.end = self.now
        for queue in (self._current, self._slices, self._numbers):
            queue.clear()

    def run(self, stop: StopRequest) -> bool:
        """Execute all events; return whether the end was reached."""
        current, pop = self._current, heapq.heappop
        thresholds = gc.get_threshold()
        gc.set_threshold(200_000, 100, 1000)  # full collections visit every client and event, so make them rare
        try:
            while current or self._next_slice():
                if stop.requested:
                    return False
                self.now, _, do, a, b = pop(current)
                self.happened += 1
                do(a, b)
        finally:
            gc.set_threshold(*thresholds)
        self.now = self.end
        return True

    def _next_slice(self) -> bool:
        """Proceed to the next slice with events; return whether there is one."""
        if not self._numbers:
            return False
        self._slice = heapq.heappop(self._numbers)
        self._current.extend(self._slices.pop(self._slice))
        heapq.heapify(self._current)
        return True
