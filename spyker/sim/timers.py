"""Timers of one node on the virtual clock."""

from __future__ import annotations

from collections.abc import Callable

from spyker.sim.clock import Clock


class SimTimers:
    """Those that run. ``ring`` is called with the name of one that has run out."""

    __slots__ = ("_marks", "clock", "ring")

    def __init__(self, clock: Clock, ring: Callable[[str], None]) -> None:
        self.clock, self.ring = clock, ring
        self._marks: dict[str, object] = {}

    def start(self, timer: str, seconds: float) -> None:
        """Let a timer run, from now."""
        self._marks[timer] = mark = object()  # of no use once the timer was stopped, or started anew
        self.clock.at(self.clock.now + seconds, self.due, timer, mark)

    def stop(self, timer: str) -> None:
        """Let it be."""
        self._marks.pop(timer, None)

    def stop_all(self) -> None:
        """Let all of them be."""
        self._marks.clear()

    def due(self, timer: str, mark: object) -> None:
        """A timer on the clock has run out."""
        if self._marks.get(timer) is mark:
            del self._marks[timer]
            self.ring(timer)
