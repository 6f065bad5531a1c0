"""When clients evaluate the model that they receive."""

from __future__ import annotations

ROUNDING = 1e-9  # seconds, of times that are sums


class EvaluationSchedule:
    """Lets each client evaluate at most once per ``interval``; never if it is ``None``."""

    def __init__(self, interval: float | None) -> None:
        self.interval = interval
        self._last: dict[int, float] = {}

    def due(self, client: int, now: float) -> bool:
        """Return whether the client evaluates a model that it receives now, and note it."""
        if self.interval is None:
            return False
        last = self._last.get(client)
        if last is not None and now - last < self.interval - ROUNDING:
            return False
        self._last[client] = now
        return True
