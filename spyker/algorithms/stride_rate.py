"""The learning rate of Stride's clients, halved where the first trainings diverge."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from spyker.protocol.state import Stateful

MOST_HALVED = 3  # times that the rate is halved, at most: some clients may ignore the rate


class StartingRate(Stateful):
    """Decides by the norms of the first round's updates whether the round is repeated with half the learning rate."""

    def __init__(self, limit: float) -> None:
        """Create the full rate; ``limit`` is that of the median norm of the first updates, or 0 for none."""
        self.limit = limit
        self.halved = 0  # number of times the rate was halved
        self.converged = 0  # number of clients within the limit at the full rate; 0 if it was less than half of them

    @property
    def may_halve(self) -> bool:
        """Whether the rate can be halved once more."""
        return self.halved < MOST_HALVED and self.limit > 0

    def diverged(self, norms: Sequence[float]) -> bool:
        """Return whether the first updates are so long that the rate has to be halved, and can be."""
        return self.may_halve and self.limit < statistics.median(norms)

    def halve(self, norms: Sequence[float]) -> None:
        """Halve the rate, because updates of these norms have diverged."""
        if not self.halved:
            converged = sum(norm <= self.limit for norm in norms)
            self.converged = converged if 2 * converged >= len(norms) else 0
        self.halved += 1

    def was_futile(self, answers: int) -> bool:
        """Return whether the first round ends without the clients that diverged, though the rate is as low as it gets.

        Then the rate is not the cause, but damaged data, for example. ``answers`` is the number of updates.
        """
        return self.halved == MOST_HALVED and answers <= self.converged

    def of(self, rate: float) -> float:
        """Return a rate, halved as often as this one was."""
        return float(rate / 2**self.halved)

    def state(self) -> Any:
        """Return the state for a checkpoint."""
        return [self.halved, self.converged]

    def restore(self, state: Any) -> None:
        """Restore the state in place."""
        self.halved, self.converged = state
