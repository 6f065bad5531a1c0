"""Placement of servers and clients: regions, assignment of clients to servers, and the order of the ring.

Servers and clients are numbered from 0. A client is in a region and assigned to its nearest server. Numbers are never
reused after a departure. The placement may change during a run.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field


class Topology(enum.Enum):
    """The servers that an algorithm needs."""

    SINGLE = "one server for all clients"
    FLAT = "one server per region, all equal"
    CLOUD = "one server per region and a cloud server above them, without clients"


@dataclass(slots=True)
class Placement:
    """The servers and clients of a world."""

    server_regions: list[int]
    """Region of each server."""
    learners: list[int]
    """Servers that have clients, in ring order."""
    client_regions: list[int]
    """Region of each client."""
    homes: list[int | None]
    """Server of each client; ``None`` after the client departed."""
    gone: set[int] = field(default_factory=set)
    """Servers that were removed."""
    helpers: list[int] = field(default_factory=list)
    """Servers without clients that open sums of masked updates, and do nothing else."""

    @classmethod
    def begin(
        cls, topology: Topology, clients: Sequence[int], server_region: int = 0, helpers: Sequence[int] = ()
    ) -> Placement:
        """Place ``clients[r]`` clients in each region ``r``, the servers that ``topology`` needs, and helpers.

        Args:
            topology: the servers that the algorithm needs.
            clients: number of clients in each region.
            server_region: region of a single server or the cloud.
            helpers: regions of the helpers, which have the highest numbers.

        """
        living = [region for region, count in enumerate(clients) for _ in range(count)]
        if topology is Topology.SINGLE:
            regions, learners, homes = [server_region], [0], [0] * len(living)
        else:
            learners, homes = list(range(len(clients))), list(living)
            regions = learners + ([server_region] if topology is Topology.CLOUD else [])
        numbers = list(range(len(regions), len(regions) + len(helpers)))
        return cls([*regions, *helpers], learners, living, list(homes), helpers=numbers)

    @property
    def servers(self) -> list[int]:
        """All servers, including those without clients."""
        return [i for i in range(len(self.server_regions)) if i not in self.gone]

    @property
    def client_count(self) -> int:
        """Number of clients assigned to a server."""
        return sum(home is not None for home in self.homes)

    def clients_of(self, server: int) -> list[int]:
        """Return the clients of a server."""
        return [k for k, home in enumerate(self.homes) if home == server]

    def next_server(self, server: int) -> int:
        """Return the successor of a server on the ring."""
        return following(self.learners, server)

    def nearest(self, region: int, latency: Sequence[Sequence[float]]) -> int:
        """Return the server with clients that has the lowest latency to a region."""
        return min(self.learners, key=lambda i: (latency[region][self.server_regions[i]], i))

    # --- Changes -----------------------------------------------------------------------------------------------

    def add_client(self, region: int, server: int) -> int:
        """Add a client and return its number."""
        self.homes.append(self._known(server))
        self.client_regions.append(region)
        return len(self.homes) - 1

    def move_client(self, client: int, server: int | None) -> None:
        """Assign a client to another server, or to none."""
        self.homes[client] = None if server is None else self._known(server)

    def add_server(self, region: int) -> int:
        """Add a server at the end of the ring and return its number."""
        self.server_regions.append(region)
        self.learners.append(len(self.server_regions) - 1)
        return self.learners[-1]

    def remove_server(self, server: int, latency: Sequence[Sequence[float]]) -> Iterable[int]:
        """Remove a server, reassign its clients to the nearest remaining server, and return them."""
        self.learners.remove(self._known(server))
        self.gone.add(server)
        moved = self.clients_of(server)
        for k in moved:
            self.homes[k] = self.nearest(self.client_regions[k], latency) if self.learners else None
        return moved

    def _known(self, server: int) -> int:
        if server not in self.learners:
            raise ValueError(f"server: {server} is not allowed: servers with clients are {self.learners}")
        return server


def following(ring: Sequence[int], server: int) -> int:
    """Return the successor of a server on a ring."""
    return ring[(ring.index(server) + 1) % len(ring)]
