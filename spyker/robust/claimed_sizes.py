"""Bounds on the numbers of examples that clients claim, for algorithms that weight updates by data size.

Nobody can check how many examples a client has. A claim therefore counts up to a limit that follows from the claims of
the other clients:

- at most ``multiple`` times the median claim; the lower median, so that of two clients the smaller one decides;
- from three clients on, at most as much as all other clients together, so that no client has more than half.

The limit changes when clients join, leave or claim something else. :meth:`ClaimedSizes.changed` then returns the
clients whose bounded size is another one.

Between servers, one server's data follow from its clients, but a server with one or two clients cannot judge their
claims, and neither can one whose clients collude. :func:`bounded_data` bounds the mean claim per client of each server
by ``multiple`` times the median over servers, in which each server counts with the number of its clients. A server with
more clients may thus have more data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from spyker.robust.order_statistics import OrderStatistics

UNKNOWN_SIZE = 1  # of a client that knows its data only when it trains
SHARE_CLIENTS = 3  # from this number of clients on, no client has more than half of the weight


class ClaimedSizes:
    """The sizes that a server's clients claim, and the sizes that count."""

    def __init__(self, multiple: float, claims: Mapping[int, int]) -> None:
        """Create the bounds.

        Args:
            multiple: a claim counts up to this multiple of the median claim.
            claims: the claims of the clients that the server starts with.

        """
        self.multiple = multiple
        self._claims = OrderStatistics(claims)
        self._limit = self._last_limit = self._find_limit()

    @property
    def clients(self) -> Mapping[int, float]:
        """The clients that are connected, with their claims."""
        return self._claims.numbers

    def claim(self, client: int, size: int) -> None:
        """Note the size that a client claims."""
        if self._claims.numbers.get(client) != size:
            self._claims.put(client, size)
            self._limit = self._find_limit()

    def unknown(self, client: int) -> bool:
        """Return whether a client that is connected has not said yet how much data it has."""
        return self._claims.numbers.get(client) == UNKNOWN_SIZE

    def drop(self, client: int) -> None:
        """Forget the claim of a client that left."""
        if client in self._claims.numbers:
            self._claims.drop(client)
            self._limit = self._find_limit()

    def bounded(self, client: int) -> int:
        """Return the size that counts for a client."""
        return int(min(self._claims.numbers.get(client, UNKNOWN_SIZE), self._limit))

    def changed(self) -> list[int]:
        """Return the clients whose bounded size has changed with the limit since the last call."""
        before, self._last_limit = self._last_limit, self._limit
        if before == self._limit or min(before, self._limit) >= self._claims.at(1.0):
            return []
        return sorted(k for k, claim in self._claims.numbers.items() if claim > min(before, self._limit))

    def _find_limit(self) -> float:
        count = len(self._claims.numbers)
        if count < 2:
            return math.inf
        limit = self.multiple * self._claims.median
        if SHARE_CLIENTS <= count < 2 * self.multiple + 1:  # with more, half of the others have that much
            others = sum(min(claim, limit) for claim in self._claims.numbers.values())
            limit = min(limit, others - min(limit, self._claims.at(1.0)))
        return max(1.0, math.floor(limit))

    def state(self) -> Any:
        """Return the state for a checkpoint."""
        return dict(self._claims.numbers)

    def restore(self, state: Any) -> None:
        """Restore the state of a checkpoint."""
        self._claims = OrderStatistics(state)
        self._limit = self._last_limit = self._find_limit()


class ClaimedData(NamedTuple):
    """The data of a server: the number of examples, and of the clients that have them."""

    examples: int
    clients: int


def bounded_data(claims: Mapping[int, ClaimedData], multiple: float) -> dict[int, int]:
    """Return the number of examples that counts for each server.

    Args:
        claims: what the servers claim; their clients' sizes are bounded already.
        multiple: the mean claim per client counts up to this multiple of the median over servers.

    """
    means = sorted((data.examples / data.clients, data.clients) for data in claims.values())
    half, seen, median = sum(clients for _, clients in means) / 2, 0, math.inf
    for mean, clients in means:
        seen += clients
        if seen >= half:
            median = mean
            break
    limits = {j: max(1, math.floor(multiple * median * data.clients)) for j, data in claims.items()}
    return {j: min(data.examples, limits[j]) for j, data in claims.items()}
