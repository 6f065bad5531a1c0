"""When a score has not become better for too long."""

from __future__ import annotations

import math


class Plateau:
    """Is told scores and their times, and knows how long the best one has stood."""

    def __init__(self, *, higher_is_better: bool, least: float = 0.0) -> None:
        """``least`` is by how much a score must be better to count as such."""
        self._sign, self._least = 1.0 if higher_is_better else -1.0, least
        self._best = -math.inf
        self.since = 0.0
        """When the best score was reached."""

    def tell(self, t: float, score: float) -> None:
        """One more score. One that is not a number is never better."""
        if self._sign * score > self._best + self._least or (self._best == -math.inf and not math.isnan(score)):
            self._best, self.since = self._sign * score, t
