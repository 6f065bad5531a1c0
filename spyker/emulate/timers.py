"""Timers of one node on the virtual clock."""

from __future__ import annotations

from collections.abc import Callable

from spyker.emulate.clock import Clock


class Timers:
    """Those that run. ``ring`` is called with the name of one that has run out."""

    __slots__ = ("_marks", "clock", "ring")

    def __init__(self, clock: Clock, ring: Callable[[str], None]) -> None:
        self.clock, self.ring = clock, ring
        self._marks: dict[str, object] = {}

    def start(self, timer: str, seconds: float) -> None:
        """Let a timer run, from now."""
        self._marks[timer] = mark = object()
        self.clock.at(self.clock.now + seconds, self._due, timer, mark)

    def stop(self, timer: str) -> None:
        """Let it be."""
        self._marks.pop(timer, None)

    def stop_all(self) -> None:
        """Let all of them be."""
        self._marks.clear()

    def _due(self, timer: str, mark: object) -> None:
        if self._marks.get(timer) is mark:  # it was neither stopped nor started again
            del self._marks[timer]
            self.ring(timer)
