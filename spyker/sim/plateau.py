"""Detection of plateaus in scores."""

from __future__ import annotations

import math


class Plateau:
    """Tracks the time since the best score."""

    def __init__(self, *, higher_is_better: bool, least: float = 0.0) -> None:
        """``least`` is the smallest improvement that counts."""
        self._sign, self._least = 1.0 if higher_is_better else -1.0, least
        self._best = -math.inf
        self.since = 0.0
        """Time of the best score."""

    def tell(self, t: float, score: float) -> None:
        """Add a score; NaN is never an improvement."""
        if self._sign * score > self._best + self._least or (self._best == -math.inf and not math.isnan(score)):
            self._best, self.since = self._sign * score, t
