"""Timers of one node on the virtual clock."""

from __future__ import annotations

from collections.abc import Callable

from spyker.sim.clock import Clock


class SimTimers:
    """Active timers by name. ``expired`` is called with the name of each timer that expires."""

    __slots__ = ("_marks", "clock", "expired")

    def __init__(self, clock: Clock, expired: Callable[[str], None]) -> None:
        self.clock, self.expired = clock, expired
        self._marks: dict[str, object] = {}

    def start(self, timer: str, seconds: float) -> None:
        """Start or restart a timer."""
        self._marks[timer] = mark = object()  # identifies this start; a later start or stop invalidates it
        self.clock.at(self.clock.now + seconds, self.due, timer, mark)

    def stop(self, timer: str) -> None:
        """Cancel a timer."""
        self._marks.pop(timer, None)

    def stop_all(self) -> None:
        """Cancel all timers."""
        self._marks.clear()

    def due(self, timer: str, mark: object) -> None:
        """Report an expired timer, unless it was cancelled or restarted."""
        if self._marks.get(timer) is mark:
            del self._marks[timer]
            self.expired(timer)
