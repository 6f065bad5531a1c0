"""Selection of the nearest server by measured round-trip time."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence

from grpc_health.v1 import health_pb2

from spyker.net.health import CHECK
from spyker.net.streams import CONNECTION_LOST, read_frame
from spyker.net.transports import Connections

PROBES = 3  # the first includes the time to connect
PROBE_SECONDS = 3.0
REQUEST = health_pb2.HealthCheckRequest().SerializeToString()
FRESH_SECONDS = 1.0  # one measurement serves all clients of a process that ask at the same time


class ServerRanking:
    """Servers ranked by round-trip time, measured with the health service; a server that is not serving is left out."""

    def __init__(self, addresses: Sequence[str], connections: Connections) -> None:
        self.addresses, self.connections = addresses, connections
        self.seconds: dict[str, float | None] = {}
        self._measured = float("-inf")
        self._turn = asyncio.Lock()

    async def best(self, *, fresh: bool = False) -> str:
        """Return the nearest server that answers or, if none does, the first of the list."""
        if len(self.addresses) == 1:
            return self.addresses[0]
        async with self._turn:
            if not self.seconds or (fresh and time.monotonic() - self._measured > FRESH_SECONDS):
                found = await asyncio.gather(*(self.measure(address) for address in self.addresses))
                self.seconds = dict(zip(self.addresses, found, strict=True))
                self._measured = time.monotonic()
        reachable = {address: t for address, t in self.seconds.items() if t is not None}
        return min(reachable, key=lambda address: reachable[address]) if reachable else self.addresses[0]

    async def measure(self, address: str) -> float | None:
        """Return the shortest of a few round trips in seconds, or ``None`` if the server is not serving."""
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                return await round_trip(self.connections, address)
        except CONNECTION_LOST as error:
            if not self.connections.failed(address, error):
                return None
        with contextlib.suppress(*CONNECTION_LOST):  # over another transport
            async with asyncio.timeout(PROBE_SECONDS):
                return await round_trip(self.connections, address)
        return None


async def round_trip(connections: Connections, address: str) -> float | None:
    """Return the shortest of a few round trips in seconds, or ``None`` if the server is not serving."""
    times = []
    for _ in range(PROBES):
        stream = await connections.open(address, CHECK)
        try:
            began = time.perf_counter()
            await stream.write(REQUEST)
            answer = health_pb2.HealthCheckResponse.FromString(await read_frame(stream))
            times.append(time.perf_counter() - began)
        finally:
            stream.cancel()
        if answer.status != health_pb2.HealthCheckResponse.SERVING:
            return None
    return min(times)
