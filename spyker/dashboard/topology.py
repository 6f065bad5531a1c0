"""The topology of a run: regions, servers, clients and latencies."""

from __future__ import annotations

import math
import sys
from bisect import bisect_right
from collections.abc import Mapping
from itertools import accumulate
from typing import Any

from spyker.dashboard.map_layout import place
from spyker.records import RunStarted
from spyker.records.client_scores import clients_per_region
from spyker.records.files import section

DEFAULT_LATENCY, LONGEST_LATENCY = 0.05, 1e6  # seconds: if unknown, and that is drawn


class RunTopology:
    """The topology of a run, from its first fact and its scenario, which may come from another version."""

    def __init__(self, start: RunStarted, scenario: Mapping[str, Any]) -> None:
        self.start, self.scenario = start, scenario
        self.regions = list(start.regions) or ["?"]
        index = {name: i for i, name in enumerate(self.regions)}
        self.server_regions = [index.get(server.region, 0) for server in start.servers]
        self.cloud = next((server.id for server in start.servers if server.clients is None), None)
        self.clients = self._clients()
        self._ends = list(accumulate(self.clients))
        self.latency = self._latency()
        self.longest = max(map(max, self.latency))

    def _clients(self) -> list[int]:
        """Return the number of clients by region."""
        found = clients_per_region(self.scenario)
        if len(found) == len(self.regions):
            return found
        counts = [0] * len(self.regions)
        for server, region in zip(self.start.servers, self.server_regions, strict=True):
            counts[region] += server.clients or 0
        return counts

    def _latency(self) -> list[list[float]]:
        """Return the one-way latencies between regions in seconds."""
        world, count = section(self.scenario, "world"), len(self.regions)
        matrix = world.get("latency-ms")
        try:
            seconds = [[float(ms) / 1000 for ms in row] for row in matrix or ()]
        except (TypeError, ValueError, OverflowError):
            seconds = []
        possible = all(len(row) == count and all(0 <= each <= LONGEST_LATENCY for each in row) for row in seconds)
        if len(seconds) != count or not possible:
            return [[0.0 if a == b else DEFAULT_LATENCY for b in range(count)] for a in range(count)]
        if world.get("uniform-latency"):
            mean = math.fsum(map(math.fsum, seconds)) / count**2
            return [[mean] * count for _ in seconds]
        return seconds

    @property
    def h_inter(self) -> float | None:
        """The spread of ages that triggers an exchange, if the algorithm has this parameter."""
        return finite(section(self.scenario, self.start.algorithm).get("h-inter"))

    @property
    def edge_rounds(self) -> int:
        """Number of a server's rounds between two cloud rounds."""
        found = section(self.scenario, self.start.algorithm).get("edge-rounds")
        return found if isinstance(found, int) and found > 0 else 1

    @property
    def duration(self) -> float | None:
        """Planned duration of a simulation; ``None`` for a deployment."""
        found = finite(self.scenario.get("duration"))
        return found if found is not None and found > 1e-6 and self.start.began is None else None

    def server_name(self, server: int) -> str:
        """Return the display name of a server."""
        if not 0 <= server < len(self.server_regions):
            return f"server {server}"
        region = self.regions[self.server_regions[server]]
        if server == self.cloud:
            return f"cloud ({region})"
        same = [i for i, r in enumerate(self.server_regions) if r == self.server_regions[server] and i != self.cloud]
        return region if len(same) == 1 else f"{region} {server}"

    def client_region(self, client: int, server: int) -> int:
        """Return the region of a client; for a client that was added later, the region of its server."""
        if 0 <= client < self._ends[-1]:
            return bisect_right(self._ends, client)
        return self.server_region(server)

    def server_region(self, server: int) -> int:
        """Return the region of a server."""
        return self.server_regions[server] if 0 <= server < len(self.server_regions) else 0

    def between(self, sender: int, receiver: int) -> float:
        """Return the latency between two servers in seconds."""
        return self.latency[self.server_region(sender)][self.server_region(receiver)]

    def payload(self) -> dict[str, Any]:
        """Return the JSON for the browser."""
        start, points = self.start, place(self.latency)
        return {
            "algorithm": start.title,
            "task": start.task,
            "metric": start.metric,
            "higherIsBetter": start.higher_is_better,
            "clients": start.clients,
            "seed": start.seed,
            "world": start.world,
            "spyker": start.spyker,
            "targets": start.targets,
            "hInter": self.h_inter,
            "duration": self.duration,
            "regions": [
                {"name": name, "x": x, "y": y, "clients": count}
                for name, (x, y), count in zip(self.regions, points, self.clients, strict=True)
            ],
            "servers": [
                {
                    "id": server.id,
                    "name": self.server_name(server.id),
                    "region": self.server_region(server.id),
                    "clients": server.clients,
                }
                for server in start.servers
            ],
            "latency": self.latency,
            "part": start.server,
        }


def finite(value: object) -> float | None:
    """Return a number of a recorded scenario; ``None`` if it is none, or not finite."""
    return float(value) if isinstance(value, int | float) and abs(value) <= sys.float_info.max else None
