"""Who stands where, who belongs to whom, and which server is next. Both worlds ask here. It may change during a run.

Servers and clients are numbered from 0. A client lives in a region and belongs to one server, its nearest. Numbers are
never given twice: a server or a client that goes leaves its number behind.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field


class Topology(enum.Enum):
    """Which servers an algorithm wants, and where."""

    SINGLE = "one server for all clients"
    FLAT = "one server per region, all equal"
    CLOUD = "one server per region and a cloud server above them, without clients"


@dataclass(slots=True)
class Placement:
    """The servers and clients of a world."""

    server_regions: list[int]
    """Where each server stands."""
    learners: list[int]
    """The servers that have clients, in the order of the ring."""
    client_regions: list[int]
    """Where each client lives."""
    homes: list[int | None]
    """To which server each client belongs; nobody's are those that left."""
    gone: set[int] = field(default_factory=set)
    """Servers that are no more."""

    @classmethod
    def begin(cls, topology: Topology, clients: Sequence[int], server_region: int = 0) -> Placement:
        """So many clients in each region, numbered in the order of regions, and the servers that a topology wants."""
        living = [region for region, count in enumerate(clients) for _ in range(count)]
        if topology is Topology.SINGLE:
            return cls([server_region], [0], living, [0] * len(living))
        regions = list(range(len(clients)))
        cloud = [server_region] if topology is Topology.CLOUD else []
        return cls(regions + cloud, regions, living, list(living))

    @property
    def servers(self) -> list[int]:
        """All servers, those without clients included."""
        return [i for i in range(len(self.server_regions)) if i not in self.gone]

    @property
    def client_count(self) -> int:
        """n_C, of those that belong to a server."""
        return sum(home is not None for home in self.homes)

    def clients_of(self, server: int) -> list[int]:
        """The clients that belong to a server."""
        return [k for k, home in enumerate(self.homes) if home == server]

    def next_server(self, server: int) -> int:
        """Who follows a server on the ring."""
        return following(self.learners, server)

    def nearest(self, region: int, latency: Sequence[Sequence[float]]) -> int:
        """The server with clients that is nearest to a region."""
        return min(self.learners, key=lambda i: (latency[region][self.server_regions[i]], i))

    # --- What changes -----------------------------------------------------------------------------------------------

    def add_client(self, region: int, server: int) -> int:
        """A client comes; its number."""
        self.homes.append(self._known(server))
        self.client_regions.append(region)
        return len(self.homes) - 1

    def move_client(self, client: int, server: int | None) -> None:
        """A client turns to another server, or to none."""
        self.homes[client] = None if server is None else self._known(server)

    def add_server(self, region: int) -> int:
        """A server comes, and closes the ring; its number."""
        self.server_regions.append(region)
        self.learners.append(len(self.server_regions) - 1)
        return self.learners[-1]

    def remove_server(self, server: int, latency: Sequence[Sequence[float]]) -> Iterable[int]:
        """A server goes, and its clients turn to the nearest that is left; which clients."""
        self.learners.remove(self._known(server))
        self.gone.add(server)
        moved = self.clients_of(server)
        for k in moved:
            self.homes[k] = self.nearest(self.client_regions[k], latency) if self.learners else None
        return moved

    def _known(self, server: int) -> int:
        if server not in self.learners:
            raise ValueError(f"server {server} takes no clients here; those that do are {self.learners}")
        return server


def following(ring: Sequence[int], server: int) -> int:
    """Who follows a server on a ring."""
    return ring[(ring.index(server) + 1) % len(ring)]
