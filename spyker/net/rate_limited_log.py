"""The same thing said once: what strangers and full disks can repeat without end is counted after that.

Of one event and reason, each who is concerned is named once in a while, at most :data:`NAMES` of them; the rest is said
in one line when the while is over.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from spyker.net.json_log import JsonLog

WHILE_SECONDS = 60.0
NAMES = 20


@dataclass(slots=True)
class SuppressedCount:
    """One (event, reason) in the present window."""

    since: float
    who: set[object] = field(default_factory=set)
    level: str = ""
    unsaid: int = 0


class RateLimitedLog:
    """Logs each (event, reason) once per window, and counts the rest."""

    def __init__(self, log: JsonLog, clock: Callable[[], float] = time.monotonic) -> None:
        self.log, self._clock = log, clock
        self._said: dict[tuple[str, str], SuppressedCount] = {}

    def say(self, level: str, event: str, reason: str, who: object = None, **fields: Any) -> None:
        """Log or count an event. There are few values of ``event`` and ``reason``; ``who`` may be anything."""
        now = self._clock()
        said = self._said.get((event, reason))
        if said is None or now >= said.since + WHILE_SECONDS:
            self._sum_up(event, reason)
            said = self._said[event, reason] = SuppressedCount(now, level=level)
        if who in said.who or len(said.who) >= NAMES:
            said.unsaid += 1
        else:
            said.who.add(who)
            getattr(self.log, level)(event, reason=reason, **fields)

    def over(self, event: str, reason: str) -> None:
        """The problem is over: log the suppressed count, and log the next occurrence."""
        self._sum_up(event, reason)

    def sum_up(self, *, all: bool = False) -> None:
        """Log suppressed counts of windows that have ended, or of all. The caller has the clock."""
        now = self._clock()
        for (event, reason), said in list(self._said.items()):
            if all or now >= said.since + WHILE_SECONDS:
                self._sum_up(event, reason)

    def _sum_up(self, event: str, reason: str) -> None:
        said = self._said.pop((event, reason), None)
        if said is not None and said.unsaid:
            seconds = round(self._clock() - said.since, 1)
            getattr(self.log, said.level)(event, reason=reason, repeated=said.unsaid, seconds=seconds)
