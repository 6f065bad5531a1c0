"""Links between places: packets are queued, delayed or lost.

Each ordered pair of places is one FIFO link, with the rule of :mod:`spyker.sim.links`: a packet of b bytes that is sent
at t starts at max(t, when the link is free), occupies the link for 8b / rate, and arrives one delay later. There is no
clock here: callers pass the time.
"""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, field

BUFFER_SECONDS = 1.0  # a link with more queued than this drops packets, as a router does


@dataclass(slots=True)
class Link:
    """One direction between two places, with its counters."""

    delay: float = 0.0
    rate: float = 0.0
    """Bits per second; 0: unlimited."""
    loss: float = 0.0
    """The probability that a packet is lost."""
    is_cut: bool = False
    free: float = field(default=0.0, repr=False)
    last: float = field(default=0.0, repr=False)
    """Arrival time of the last packet; later packets do not overtake it, even if the delay has become shorter."""
    cuts: int = field(default=0, repr=False)
    packets: int = 0
    bytes: int = 0
    lost: int = 0
    """Number of packets lost at random, by a cut, or because the queue was full."""


class Links:
    """All links between places, and the packets in flight."""

    def __init__(self, places: int, seed: int = 0) -> None:
        self.links = [[Link() for _ in range(places)] for _ in range(places)]
        self._random = random.Random(seed)
        self._under_way: list[tuple[float, int, int, Link, int, bytes]] = []
        self._taken = 0

    def send(self, now: float, source: int, target: int, packet: bytes) -> None:
        """Send a packet: :meth:`arrived` returns it later, or it is lost."""
        link = self.links[source][target]
        start = max(now, link.free)
        if link.is_cut or start - now > BUFFER_SECONDS or (link.loss and self._random.random() < link.loss):
            link.lost += 1
            return
        link.free = start + 8 * len(packet) / link.rate if link.rate else start
        link.last = due = max(link.last, link.free + link.delay)
        self._taken += 1
        heapq.heappush(self._under_way, (due, self._taken, target, link, link.cuts, packet))

    def next_arrival(self) -> float | None:
        """Return the time at which the next packet is due, if one is in flight."""
        return self._under_way[0][0] if self._under_way else None

    def arrived(self, now: float) -> list[tuple[int, bytes]]:
        """Return the packets that are due, each with its destination."""
        due = []
        while self._under_way and self._under_way[0][0] <= now:
            _, _, target, link, cuts, packet = heapq.heappop(self._under_way)
            if cuts != link.cuts:  # the link was cut while the packet was in flight
                link.lost += 1
                continue
            link.packets += 1
            link.bytes += len(packet)
            due.append((target, packet))
        return due

    def cut(self, source: int, target: int) -> None:
        """Lose all packets on this link from now on, including those in flight."""
        link = self.links[source][target]
        link.is_cut = True
        link.cuts += 1
        link.free = link.last = 0.0

    def heal(self, source: int, target: int) -> None:
        """Undo a cut."""
        self.links[source][target].is_cut = False
