"""Detection of divergence by the norms of updates."""

from __future__ import annotations

from typing import Any

from spyker.protocol.state import Stateful
from spyker.protocol.weights import Weights
from spyker.vectors import Vector

DIVERGED = 20.0  # a norm above this multiple of a good model's norm is a sign of divergence
ROUNDS_DIVERGED = 3  # this many such rounds in a row are divergence


class DivergenceDetector(Stateful):
    """Remembers the last good model and compares the norms of updates with the norms that this model led to."""

    def __init__(self, initial: Vector) -> None:
        self.good = initial  # the last good model
        self.good_norm = 0.0  # the median norm of its updates
        self.bad_rounds = 0  # in a row

    def observe(self, norm: float, median_norm: float, model: Weights) -> bool:
        """Observe a round and return whether training has diverged.

        Args:
            norm: The median norm of the round's updates.
            median_norm: The median norm of the rounds before.
            model: The model before the round's step.

        """
        if not self.good_norm or norm <= DIVERGED * self.good_norm:
            if not self.good_norm or norm <= median_norm:
                self.good, self.good_norm = model.snapshot(), max(norm, median_norm)
            self.bad_rounds = 0
            return False
        self.bad_rounds += 1
        return self.bad_rounds >= ROUNDS_DIVERGED

    def restored(self) -> Vector:
        """Return the last good model, and observe anew."""
        self.bad_rounds = 0
        return self.good

    def state(self) -> Any:
        """Return the state for a checkpoint."""
        return [self.good, self.good_norm, self.bad_rounds]

    def restore(self, state: Any) -> None:
        """Restore the state in place."""
        self.good, self.good_norm, self.bad_rounds = state
