"""Selection of the nearest server by measured round-trip time."""

from __future__ import annotations

import asyncio
import contextlib
import time

from grpc_health.v1 import health_pb2

from spyker.net.health import CHECK
from spyker.net.known_servers import KnownServers
from spyker.net.streams import CONNECTION_LOST, read_frame
from spyker.net.transports import Connections

PROBES = 3  # the first includes the time to connect
PROBE_SECONDS = 3.0
SILENT_SECONDS = 3.0  # without an answer to a probe on a connection of its own, a server is silent
GRACE_SECONDS, GRACE_FACTOR = 0.25, 3.0  # how long further servers are waited for once one has answered
REQUEST = health_pb2.HealthCheckRequest().SerializeToString()
NEARER, NEARER_SECONDS = 0.7, 0.005  # a change of server must shorten the round trip to this ratio, and by this much
FRESH_SECONDS = 1.0  # one measurement serves all clients of a process that ask at the same time


class ServerRanking:
    """Servers ranked by round-trip time, measured with the health service; a server that is not serving is left out."""

    def __init__(self, known: KnownServers, connections: Connections) -> None:
        self.known, self.connections = known, connections
        self.seconds: dict[str, float | None] = {}
        self._measured = float("-inf")
        self._turn = asyncio.Lock()
        self._probes: dict[str, asyncio.Task[bool]] = {}

    async def best(self, *, fresh: bool = False, without: str | None = None) -> str:
        """Return the nearest server that answers or, if none does, the first of the list.

        Args:
            fresh: measure now.
            without: a server that is chosen only if no other answers.

        """
        addresses = self.known.addresses
        if len(addresses) == 1:
            return addresses[0]
        async with self._turn:
            stale = fresh and time.monotonic() - self._measured > FRESH_SECONDS
            if stale or not self.seconds.keys() & set(addresses):
                self.seconds = await self._measure_all(list(addresses))
                self._measured = time.monotonic()
        reachable = {a: t for a, t in self.seconds.items() if t is not None and a in self.known.addresses}
        others = {a: t for a, t in reachable.items() if a != without} or reachable
        return min(others, key=lambda address: others[address]) if others else self.known.addresses[0]

    async def _measure_all(self, addresses: list[str]) -> dict[str, float | None]:
        """Measure all servers; do not wait for those that take much longer than the first one that answers."""
        began = time.monotonic()
        running = {address: asyncio.create_task(self.measure(address)) for address in addresses}
        pending = set(running.values())
        timeout: float | None = None
        while pending:
            done, pending = await asyncio.wait(pending, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                break
            took = time.monotonic() - began
            if timeout is None and any(task.result() is not None for task in done):
                timeout = max(GRACE_SECONDS, (GRACE_FACTOR - 1) * took)
        for task in pending:
            task.cancel()
        return {a: task.result() if task.done() and not task.cancelled() else None for a, task in running.items()}

    async def measure(self, address: str) -> float | None:
        """Return the shortest of a few round trips in seconds, or ``None`` if the server is not serving."""
        # A connection that is kept would be one without a client, which the server closes with a warning.
        async with self.connections.temporary() as connections:
            try:
                async with asyncio.timeout(PROBE_SECONDS):
                    return await round_trip(connections, address)
            except CONNECTION_LOST as error:
                if not connections.failed(address, error):
                    return None
            with contextlib.suppress(*CONNECTION_LOST):  # over another transport
                async with asyncio.timeout(PROBE_SECONDS):
                    return await round_trip(connections, address)
        return None

    async def silent(self, address: str) -> bool:
        """Return whether a server does not answer, and another one does.

        The probe has a connection of its own, so that it does not wait behind a model. If no other server answers,
        either, the fault may be on this side. Clients of one process share a probe.
        """
        probe = self._probes.get(address)
        if probe is None or probe.done():
            probe = self._probes[address] = asyncio.create_task(self._is_silent(address))
        return await asyncio.shield(probe)

    async def _is_silent(self, address: str) -> bool:
        with contextlib.suppress(*CONNECTION_LOST):
            async with self.connections.temporary() as connections, asyncio.timeout(SILENT_SECONDS):
                if await round_trip(connections, address, 1) is not None:
                    return False
        best = await self.best(fresh=True, without=address)
        return best != address and self.seconds.get(best) is not None


def clearly_nearer(there: float, here: float) -> bool:
    """Return whether a round-trip time justifies a change of server. Measurements vary, most of all short ones."""
    return there < NEARER * here and here - there > NEARER_SECONDS


async def round_trip(connections: Connections, address: str, probes: int = PROBES) -> float | None:
    """Return the shortest of a few round trips in seconds, or ``None`` if the server is not serving."""
    times = []
    for _ in range(probes):
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
