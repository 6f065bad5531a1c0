"""How far one step may go: as far as the clients' updates say something about.

Theory of operation
-------------------
A client's update describes the neighbourhood of the model that it trained, about as far as the update is long. Momentum
and gain can carry a model much farther, and there the loss is unknown. Let L be the median norm of a round's updates,
and a how well they agree: the norm of their mean over the mean of their norms. A step may always be as long as the
mean, a·L, which is what FedAvg does. It may be longer, up to

    L/a,        but no more than a fifth of the model's norm, and
    δ/(1 − ρ),  but no more than a twentieth of it.

The first is for updates that cancel each other: each of them went much farther than their mean, and the mean may be
extended (as FedExP does, for the same reason). The second is for updates that stay the same from round to round: where
the model moved by δ along the last mean update and the next one is still ρ times as long in that direction, it reaches
zero after δ/(1 − ρ). What is extended is noise, too; so both are limited by what a model of this norm can bear.
"""

from __future__ import annotations

from typing import Any

from spyker.protocol.state import Stateful
from spyker.vectors import Vector, dot, length

SMOOTHED_ROUNDS = 0.7  # how much of the clients' agreement is that of earlier rounds
SMOOTHED_SECANT = 0.5
STEADIEST = 0.95  # updates are never taken to be steadier than this
FARTHEST = 20.0  # times the median norm
EXTENDED, EXTRAPOLATED = 0.2, 0.05  # of the model's norm
COMMON = 0.1  # of it, where what is extrapolated is the average of all servers


class Reach(Stateful):
    """What the rounds of one server have told about the length of steps."""

    def __init__(self) -> None:
        self.agreement = 0.0  # a, smoothed
        self.steady = 0.0  # ρ
        self.moved = 0.0  # δ
        self.mean: Vector | None = None  # the last round's update
        self.norm = 0.0  # of it
        self.along = 0.0  # the model that was trained, along it
        self.bound = 0.0  # for the last round's step
        self.widest = 0.0  # the largest bound since the last exchange began
        self.plain = 0.0  # the longest mean update since then, not clipped
        self.extrapolated = 0.0  # how far the common model may be

    def observe(self, mean: Vector, agreement: float, median: float, trained: Vector) -> None:
        """A round ended: its clipped mean, the agreement and the median norm of its updates, and what was trained."""
        kept = SMOOTHED_ROUNDS if self.agreement else 0.0
        self.agreement = kept * self.agreement + (1 - kept) * agreement
        norm = length(mean)
        if self.mean is not None and (before := self.norm) > 0:
            steady = dot(mean, self.mean) / before / max(before, norm)
            moved = dot(trained, self.mean) / before - self.along / before
            self.steady += (1 - SMOOTHED_SECANT) * (steady - self.steady)
            self.moved += (1 - SMOOTHED_SECANT) * (moved - self.moved)
        self.mean, self.norm, self.along = mean, norm, dot(trained, mean)
        size, plain = length(trained), agreement * median
        self.bound = max(plain, min(median / self.agreement, EXTENDED * size))
        if self.steady > 0 and self.moved > 0:
            secant = self.moved / (1 - min(STEADIEST, self.steady))
            self.bound = max(self.bound, min(FARTHEST * median, secant, EXTRAPOLATED * size))
        self.widest = max(self.widest, self.bound)
        self.plain = max(self.plain, plain)
        self.extrapolated = COMMON * size

    def extended(self, factor: float, spread: float) -> float:
        """A factor by which to extend or shorten the mean update.

        The average of all servers' updates may be extended until it is as long as one of them, ``spread`` times, or to
        the share of the model's norm that extrapolation may have.
        """
        if factor <= 1 or self.plain <= 0:
            return min(1.0, factor)
        return max(1.0, min(factor, max(spread, self.extrapolated / self.plain)))

    def between_exchanges(self, agreement: float, extension: float) -> float:
        """How much progress a server may make before it is averaged with others, who agree so well.

        At 0 it is one plain step, as in FedAvg, ``extension`` times as long; the nearer to 1, the farther it may go.
        """
        return extension * self.plain + agreement / (1 - agreement) * self.widest

    def exchanged(self) -> None:
        """An exchange begins."""
        self.widest = self.plain = 0.0

    # --- A restart ---------------------------------------------------------------------------------------------------

    def state(self) -> Any:
        """For a checkpoint."""
        norms = [self.bound, self.widest, self.plain, self.extrapolated]
        return [self.agreement, self.steady, self.moved, self.mean, self.norm, self.along, norms]

    def restore(self, kept: Any) -> None:
        """Go on from there."""
        self.agreement, self.steady, self.moved, self.mean, self.norm, self.along, norms = kept
        self.bound, self.widest, self.plain, self.extrapolated = norms
