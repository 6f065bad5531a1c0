"""Limits on connections until their callers are authenticated.

A caller has a few seconds and a few kilobytes to authenticate. If too many callers try at once, those of the network
with the most connections are disconnected first, and of these the oldest. So a stranger cannot hold the places of
clients, and cannot make a server's HTTP/2 library buffer more than a few kilobytes.
"""

from __future__ import annotations

import contextlib
import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from spyker.net.peer_address import network_of, original_name

AUTHENTICATION_SECONDS = 10.0  # from the first packet to a valid Hello
AUTHENTICATION_BYTES = 1 << 16  # TLS, HTTP/2 and Hello, whose limit is 16 kB

TIMEOUT, FLOOD, CROWDED = "unauthenticated-timeout", "unauthenticated-flood", "unauthenticated-crowd"


class AuthenticatedPeers:
    """The connections whose callers are authenticated, by name."""

    def __init__(self) -> None:
        self._streams = Counter[str]()
        self.networks = set[str]()
        """From which a connection has been authenticated since the process started."""
        self.changed: Callable[[str, bool], None] = lambda peer, authenticated: None
        """Called when a connection has its first authenticated stream, and when it has none any more."""

    def __contains__(self, peer: str) -> bool:
        return self._streams[peer] > 0

    @contextlib.contextmanager
    def streaming(self, peer: str) -> Iterator[None]:
        """Count a connection as authenticated within the context."""
        peer = original_name(peer)
        self._streams[peer] += 1
        self.networks.add(network_of(peer))
        if self._streams[peer] == 1:
            self.changed(peer, True)
        try:
            yield
        finally:
            self._streams[peer] -= 1
            if not self._streams[peer]:
                del self._streams[peer]
                self.changed(peer, False)


@dataclass(slots=True)
class Connection:
    """A connection as the limits see it."""

    peer: str
    since: float
    """When it was opened, or when its last authenticated stream ended."""
    received: int = 0
    """Bytes received since then."""


def excess(strangers: Sequence[Connection], authenticated: int, most: int, now: float) -> list[tuple[Connection, str]]:
    """Return the connections to close, each with a reason.

    Args:
        strangers: connections that are not authenticated.
        authenticated: number of those that are.
        most: maximum number of connections at the port.
        now: the time.

    """
    closing, waiting = list[tuple[Connection, str]](), defaultdict[str, list[Connection]](list)
    for each in strangers:
        if each.received > AUTHENTICATION_BYTES:
            closing.append((each, FLOOD))
        elif now > each.since + AUTHENTICATION_SECONDS:
            closing.append((each, TIMEOUT))
        else:
            waiting[network_of(each.peer)].append(each)
    # An eighth of the places stays free, so that a client finds one; clients may use the half that strangers may not.
    allowed = max(1, min(most // 2, most - most // 8 - authenticated))
    surplus = sum(map(len, waiting.values())) - allowed
    if surplus <= 0:
        return closing
    for group in waiting.values():
        group.sort(key=lambda each: -each.since)  # the oldest is the last
    heap = [(-len(group), network) for network, group in waiting.items()]
    heapq.heapify(heap)
    for _ in range(surplus):
        count, network = heap[0]
        closing.append((waiting[network].pop(), CROWDED))
        heapq.heapreplace(heap, (count + 1, network))
    return closing
