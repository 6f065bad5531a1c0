"""Links: each ordered pair of nodes is one FIFO link with a latency and a bandwidth.

A message of b bytes sent at time t starts when the link is free, occupies it for 8b / bandwidth, and arrives one
latency later.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from spyker.placement import Placement


class Links:
    """All links. Each client has one link to its server and one back."""

    def __init__(self, latency: Sequence[Sequence[float]], bandwidth: float, places: Placement) -> None:
        self.latency = latency
        self.seconds_per_byte = 8 / bandwidth
        self.server_regions = places.server_regions
        self.client_regions = places.client_regions
        self.down_free = array("d", bytes(8 * len(places.homes)))
        self.up_free = array("d", bytes(8 * len(places.homes)))
        self.peer_free: dict[tuple[int, int], float] = {}
        self.bytes_down = self.bytes_up = self.bytes_between = 0

    @property
    def total_bytes(self) -> int:
        """Total bytes sent over all links."""
        return self.bytes_down + self.bytes_up + self.bytes_between

    def down(self, now: float, server: int, client: int, size: int) -> float:
        """Return the arrival time of a message from a server to a client."""
        self.bytes_down += size
        self.down_free[client] = free = max(now, self.down_free[client]) + size * self.seconds_per_byte
        return free + self.latency[self.server_regions[server]][self.client_regions[client]]

    def up(self, now: float, client: int, server: int, size: int) -> float:
        """Return the arrival time of a message from a client to its server."""
        self.bytes_up += size
        self.up_free[client] = free = max(now, self.up_free[client]) + size * self.seconds_per_byte
        return free + self.latency[self.client_regions[client]][self.server_regions[server]]

    def between(self, now: float, sender: int, receiver: int, size: int) -> float:
        """Return the arrival time of a message between servers."""
        self.bytes_between += size
        free = max(now, self.peer_free.get((sender, receiver), 0.0)) + size * self.seconds_per_byte
        self.peer_free[sender, receiver] = free
        return free + self.latency[self.server_regions[sender]][self.server_regions[receiver]]

    def control(self, now: float, sender: int, receiver: int) -> float:
        """Return the arrival time of a control message or an acknowledgement.

        It is small and has a separate connection: it uses no bandwidth, and does not wait for models.
        """
        return now + self.latency[self.server_regions[sender]][self.server_regions[receiver]]

    def renew(self, client: int) -> None:
        """Reset the links of a client that joined or changed its server."""
        for free in (self.down_free, self.up_free):
            if client == len(free):
                free.append(0.0)
            free[client] = 0.0
