"""Batches of masked updates that are opened together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from spyker.privacy.fixed_point import LARGEST_SUM, Residues

TOLERANCE = 1.001  # of bounds, for rounding
LISTS = ("clients", "times", "weights", "bounds", "evaluated", "scores", "lengths")  # with an entry per update


@dataclass(slots=True)
class Batch:
    """The masked updates that have the same helper, the same scale, the same weights and the same group of clients."""

    helper: int
    scale: int
    largest: float
    group: int
    total: Residues
    extra: Residues
    clients: list[int] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    """Multiples of ``1/LEVELS`` with which the updates count."""
    weights: list[float] = field(default_factory=list)
    bounds: list[float] = field(default_factory=list)
    """Norms that the updates were clipped to."""
    evaluated: list[float] = field(default_factory=list)
    """Weights of the scores that ride along."""
    scores: list[int] = field(default_factory=list)
    """Which scores ride along: bits."""
    used: float = 0.0
    """How much of the range the sum can take up at most."""
    lengths: list[int] = field(default_factory=list)
    seals: bytearray = field(default_factory=bytearray)

    @property
    def key(self) -> tuple[int, int, float]:
        """What the updates of a sum have in common."""
        return self.helper, self.scale, self.largest

    def can_be_opened(self, threshold: int) -> bool:
        """Return whether the helper would open the sum."""
        return len(set(self.clients)) >= threshold and not self.dominated

    def merge(self, other: Batch) -> None:
        """Add another batch of the same helper, scale and weights."""
        np.add(self.total, other.total, out=self.total)
        np.add(self.extra, other.extra, out=self.extra)
        for name in LISTS:
            getattr(self, name).extend(getattr(other, name))
        self.used += other.used
        self.seals += other.seals

    @property
    def dominated(self) -> bool:
        """Whether one client outweighs all others together."""
        return outweighs_rest(self.clients, self.reaches)

    @property
    def reaches(self) -> list[float]:
        """The norms that the updates can have in the sum, at most."""
        return [product * bound for product, bound in zip(self.products, self.bounds, strict=True)]

    @property
    def most(self) -> float:
        """Σ a·w·bound: the norm that the sum can have at most."""
        return math.fsum(self.reaches)

    @property
    def products(self) -> list[float]:
        """The weights with which the updates count."""
        return [times * weight for times, weight in zip(self.times, self.weights, strict=True)]

    def state(self) -> list[Any]:
        """Return the state for a checkpoint."""
        about = [self.helper, self.scale, self.largest, self.group, self.used]
        numbers = [getattr(self, name) for name in LISTS]
        return [about, numbers, [self.total, self.extra, np.frombuffer(bytes(self.seals), np.uint8)]]


def restored_batch(state: Any) -> Batch:
    """Return the batch that a checkpoint holds."""
    (helper, scale, largest, group, used), numbers, (total, extra, seals) = state
    sums = np.array(total, np.uint32), np.array(extra, np.uint32)
    batch = Batch(helper, scale, largest, group, *sums, used=used, **dict(zip(LISTS, numbers, strict=True)))
    batch.seals += np.asarray(seals, np.uint8).tobytes()
    return batch


def merged(groups: list[Batch], threshold: int, spare: int) -> list[Batch]:
    """Return the batches of groups of clients; one that could not be opened is merged with the smallest other one.

    Args:
        groups: batches that differ by their groups only.
        threshold: fewest clients whose sum is opened.
        spare: the group that is left out if the others can be opened.

    """
    groups = sorted(groups, key=lambda each: each.group)
    while True:
        chosen = [each for each in groups if each.group != spare]
        small = next((each for each in chosen or groups if not each.can_be_opened(threshold)), None)
        others = [each for each in groups if each is not small and small and each.used + small.used <= LARGEST_SUM]
        if small is None or not others:
            return groups
        other = min(others, key=lambda each: (each.group == spare, len(each.clients)))
        into, away = (small, other) if other.group == spare else (other, small)
        into.merge(away)
        groups.remove(away)


def outweighs_rest(clients: Sequence[int], reaches: Sequence[float]) -> bool:
    """Return whether the updates of one client may have a larger norm than those of all others together.

    Args:
        clients: the sender of each update.
        reaches: the norm that each update can have in the sum, at most.

    """
    sums: dict[int, float] = {}
    for client, reach in zip(clients, reaches, strict=True):
        sums[client] = sums.get(client, 0.0) + reach
    return 2 * max(sums.values()) > TOLERANCE * sum(sums.values())
