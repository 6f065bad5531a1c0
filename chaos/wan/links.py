"""What happens to a packet between two places: it waits for its turn, travels, or is lost.

Each ordered pair of places is one FIFO link, with the rule of the emulated world's links: a packet of b bytes that
comes at t starts at max(t, when the link is free), occupies the link for 8b / rate, and arrives one delay later. Here
is no clock: whoever asks says what time it is.
"""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, field

BUFFER_SECONDS = 1.0  # a link with more than this waiting for its turn drops what comes, as a router does


@dataclass(slots=True)
class Link:
    """One direction between two places, and what passed through it so far."""

    delay: float = 0.0
    rate: float = 0.0
    """Bits per second; 0 is no limit."""
    loss: float = 0.0
    """The probability that a packet is lost."""
    is_cut: bool = False
    free: float = field(default=0.0, repr=False)
    last: float = field(default=0.0, repr=False)
    """When the packet that was taken last arrives: none overtakes it, even if the delay has become shorter."""
    cuts: int = field(default=0, repr=False)
    packets: int = 0
    bytes: int = 0
    lost: int = 0
    """By chance, to a cut, or because too many were waiting."""


class Links:
    """All links between so many places, and the packets that are under way."""

    def __init__(self, places: int, seed: int = 0) -> None:
        self.links = [[Link() for _ in range(places)] for _ in range(places)]
        self._random = random.Random(seed)
        self._under_way: list[tuple[float, int, int, Link, int, bytes]] = []
        self._taken = 0

    def send(self, now: float, source: int, target: int, packet: bytes) -> None:
        """A packet comes to a link. It will be among those that :meth:`arrived` returns, or is lost."""
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
        """When the next packet is due, if one is under way."""
        return self._under_way[0][0] if self._under_way else None

    def arrived(self, now: float) -> list[tuple[int, bytes]]:
        """The packets that are due, each with the place it goes to."""
        due = []
        while self._under_way and self._under_way[0][0] <= now:
            _, _, target, link, cuts, packet = heapq.heappop(self._under_way)
            if cuts != link.cuts:  # the link was cut while it was under way
                link.lost += 1
                continue
            link.packets += 1
            link.bytes += len(packet)
            due.append((target, packet))
        return due

    def cut(self, source: int, target: int) -> None:
        """Lose everything on this link from now on, also what is under way."""
        link = self.links[source][target]
        link.is_cut = True
        link.cuts += 1
        link.free = link.last = 0.0

    def heal(self, source: int, target: int) -> None:
        """Undo a cut."""
        self.links[source][target].is_cut = False
