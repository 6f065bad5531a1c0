"""Virtual time: a queue of things to happen. Ties are broken by the order in which they were scheduled."""

from __future__ import annotations

import gc
import heapq
from collections.abc import Callable
from typing import Any, TypeAlias

Event: TypeAlias = tuple[float, int, Callable[[Any, Any], None], Any, Any]


class StopRequest:
    """A wish to end a run early. Set ``requested``, from a signal handler for instance."""

    requested = False


class Clock:
    """Runs what was scheduled, in the order of time, up to an end. Nothing happens after the end.

    Time is cut into slices. Only what belongs to the present one, or was late, is kept in order; the rest lies in a
    pile for each slice until its turn comes. So the order costs the same for few and for very many events, and the
    memory that it touches stays small. ``crowd`` says how many nodes there are about, and only speed depends on it.
    """

    __slots__ = (
        "_per_second",
        "_present",
        "_scheduled",
        "_slice",
        "_slices",
        "_turns",
        "end",
        "happened",
        "now",
    )

    def __init__(self, end: float, crowd: int = 100) -> None:
        self.now = 0.0
        self.end = end
        self.happened = 0
        self._per_second = max(1.0, crowd / 10)  # a node does something ten times a second, more or less
        self._slice = 0
        self._present: list[Event] = []  # a heap: everything up to the end of the present slice
        self._slices: dict[int, list[Event]] = {}  # what comes later, in no order
        self._turns: list[int] = []  # a heap: the numbers of these slices
        self._scheduled = 0

    def at(self, time: float, do: Callable[[Any, Any], None], a: Any, b: Any) -> None:
        """Have ``do(a, b)`` happen at a time that is not before now."""
        if time <= self.end:
            self._scheduled = scheduled = self._scheduled + 1
            number = int(time * self._per_second)
            if number <= self._slice:
                heapq.heappush(self._present, (time, scheduled, do, a, b))
            elif number in self._slices:
                self._slices[number].append((time, scheduled, do, a, b))
            else:
                self._slices[number] = [(time, scheduled, do, a, b)]
                heapq.heappush(self._turns, number)

    def finish(self) -> None:
        """Make now the end."""
        self.end = self.now
        for queue in (self._present, self._slices, self._turns):
            queue.clear()

    def run(self, stop: StopRequest) -> bool:
        """Let everything happen. Returns whether the end was reached."""
        present, pop = self._present, heapq.heappop
        thresholds = gc.get_threshold()
        gc.set_threshold(200_000, 100, 1000)  # or the collector would walk every client and event again and again
        try:
            while present or self._turn():
                if stop.requested:
                    return False
                self.now, _, do, a, b = pop(present)
                self.happened += 1
                do(a, b)
        finally:
            gc.set_threshold(*thresholds)
        self.now = self.end
        return True

    def _turn(self) -> bool:
        """Go on to the next slice in which anything happens, if there is one."""
        if not self._turns:
            return False
        self._slice = heapq.heappop(self._turns)
        self._present.extend(self._slices.pop(self._slice))
        heapq.heapify(self._present)
        return True
