"""Selection of the nearest server by measured round-trip time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

PROBES = 3  # the first includes the time to connect
PROBE_SECONDS = 3.0
FRESH_SECONDS = 1.0  # one measurement serves all clients of a process that ask at the same time


class ServerRanking:
    """Servers ranked by round-trip time, measured with the health service; a server that is not serving is left out."""

    def __init__(self, addresses: Sequence[str], connect: Callable[[str], grpc.aio.Channel]) -> None:
        self.addresses, self.connect = addresses, connect
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
        stub = health_pb2_grpc.HealthStub(self.connect(address))
        times = []
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                for _ in range(PROBES):
                    began = time.perf_counter()
                    answer = await stub.Check(health_pb2.HealthCheckRequest())
                    times.append(time.perf_counter() - began)
                    if answer.status != health_pb2.HealthCheckResponse.SERVING:
                        return None
        except (grpc.aio.AioRpcError, TimeoutError):
            return None
        return min(times)
