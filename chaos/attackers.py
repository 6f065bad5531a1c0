"""Clients that claim far more data than they have, or that skip training and answer at once, during the whole run.

One seed in ten has them. They use a random generator of their own, so that all other faults stay the same.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from spyker.robust.update_filter import ALWAYS, FilterParameters

SEEDS, CHOSEN = 10, 5  # every tenth seed, those that end in this digit
CLIENTS = 4  # of each server: enough to compare clients with
CLAIMED = 1 << 31
MOST_UPDATES, FIRST_UPDATES = 15.0, 40  # multiple of the median of a server's clients, plus this many


@dataclass(frozen=True, slots=True)
class Attackers:
    """The attackers of a plan, and the filter that servers have against them."""

    claiming: int
    """A client that claims 2**31 examples."""
    hasty: int
    """A client that answers without training."""
    robust: FilterParameters = FilterParameters(when=ALWAYS)

    def sizes(self, honest: Callable[[int], int]) -> Callable[[int], int]:
        """Return the sizes that clients claim."""
        return lambda k: CLAIMED if k == self.claiming else honest(k)

    def delays(self, honest: Sequence[float]) -> list[float]:
        """Return the seconds that clients train."""
        return [0.001 if k == self.hasty else seconds for k, seconds in enumerate(honest)]


def attackers(seed: int, servers: int) -> Attackers | None:
    """Return the attackers that follow from a seed, if it has any."""
    if seed % SEEDS != CHOSEN:
        return None
    claiming, hasty = np.random.default_rng((seed, 13)).choice(servers * CLIENTS, 2, replace=False).tolist()
    return Attackers(claiming, hasty)


def outweighed(server: Any) -> str:
    """Return a violation if a client has too much weight at a server; otherwise an empty text."""
    sizes: Mapping[int, int] = getattr(server, "sizes", {})
    if server.update_filter.on and len(sizes) >= 2:
        k = max(sizes, key=sizes.__getitem__)
        if sizes[k] > 2 * statistics.median_low(sizes.values()):
            return f"client {k} counts for {sizes[k]:,} examples at server {server.id}"
    return ""


def flooded(applied: Mapping[tuple[int, int], int]) -> str:
    """Return a violation if too many updates of a client were applied; otherwise an empty text."""
    for server in sorted({i for i, _ in applied}):
        counts = Counter({k: n for (i, k), n in applied.items() if i == server})
        (k, most), *_ = counts.most_common(1)
        if len(counts) >= 3 and most > MOST_UPDATES * statistics.median_low(counts.values()) + FIRST_UPDATES:
            return f"{most} updates of client {k} were applied at server {server}"
    return ""
