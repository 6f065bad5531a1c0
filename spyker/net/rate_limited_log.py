"""A rate-limited log for events that strangers or a full disk can repeat without end.

In a window of time, each (event, reason) is logged once per subject, for at most :data:`MAX_SUBJECTS` subjects. Further
occurrences are counted, and the count is logged at the end of the window.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from spyker.net.json_log import JsonLog

WINDOW_SECONDS = 60.0
MAX_SUBJECTS = 20


@dataclass(slots=True)
class Window:
    """The current window of one (event, reason)."""

    since: float
    level: str
    subjects: set[object] = field(default_factory=set)
    suppressed: int = 0


class RateLimitedLog:
    """Logs each (event, reason) once per window and subject, and counts the rest."""

    def __init__(self, log: JsonLog, clock: Callable[[], float] = time.monotonic) -> None:
        self.log, self._clock = log, clock
        self._windows: dict[tuple[str, str], Window] = {}

    def say(self, level: str, event: str, reason: str, subject: object = None, **fields: Any) -> bool:
        """Log or count an event, and return whether it was logged.

        ``event`` and ``reason`` have few values; ``subject`` may be anything.
        """
        now = self._clock()
        window = self._windows.get((event, reason))
        if window is None or now >= window.since + WINDOW_SECONDS:
            self.over(event, reason)
            window = self._windows[event, reason] = Window(now, level)
        if subject in window.subjects or len(window.subjects) >= MAX_SUBJECTS:
            window.suppressed += 1
            return False
        window.subjects.add(subject)
        getattr(self.log, level)(event, reason=reason, **fields)
        return True

    def over(self, event: str, reason: str) -> None:
        """End a window: log the suppressed count, and log the next occurrence in full."""
        window = self._windows.pop((event, reason), None)
        if window is not None and window.suppressed:
            seconds = round(self._clock() - window.since, 1)
            getattr(self.log, window.level)(event, reason=reason, repeated=window.suppressed, seconds=seconds)

    def sum_up(self, *, all: bool = False) -> None:
        """Log the suppressed counts of windows that have ended, or of all. The caller calls this periodically."""
        now = self._clock()
        for (event, reason), window in list(self._windows.items()):
            if all or now >= window.since + WINDOW_SECONDS:
                self.over(event, reason)
