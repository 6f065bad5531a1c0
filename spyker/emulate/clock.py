"""Virtual time: a queue of things to happen. Ties are broken by the order in which they were scheduled."""

from __future__ import annotations

import gc
import heapq
from collections.abc import Callable
from typing import Any


class Stop:
    """A wish to end a run early. Set ``requested``, from a signal handler for instance."""

    requested = False


class Clock:
    """Runs what was scheduled, in the order of time, up to an end. Nothing happens after the end."""

    __slots__ = ("_heap", "_scheduled", "end", "happened", "now")

    def __init__(self, end: float) -> None:
        self.now = 0.0
        self.end = end
        self.happened = 0
        self._heap: list[tuple[float, int, Callable[[Any, Any], None], Any, Any]] = []
        self._scheduled = 0

    def at(self, time: float, do: Callable[[Any, Any], None], a: Any, b: Any) -> None:
        """Have ``do(a, b)`` happen at a time that is not before now."""
        if time <= self.end:
            self._scheduled = scheduled = self._scheduled + 1
            heapq.heappush(self._heap, (time, scheduled, do, a, b))

    def finish(self) -> None:
        """Make now the end."""
        self.end = self.now
        self._heap.clear()

    def run(self, stop: Stop) -> bool:
        """Let everything happen. Returns whether the end was reached."""
        heap, pop = self._heap, heapq.heappop
        thresholds = gc.get_threshold()
        gc.set_threshold(200_000, 100, 1000)  # or the collector would walk every client and event again and again
        try:
            while heap:
                if stop.requested:
                    return False
                self.now, _, do, a, b = pop(heap)
                self.happened += 1
                do(a, b)
        finally:
            gc.set_threshold(*thresholds)
        self.now = self.end
        return True
