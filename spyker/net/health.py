"""The method ``Check`` of gRPC's health protocol, for the server as a whole.

The service is open to everybody, so requests must be cheap. gRPC itself would buffer requests up to the size limit of
models; here at most a few short requests are read at a time. Further requests are answered unread, because the answer
does not depend on the request.
"""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2

CHECK = "/grpc.health.v1.Health/Check"
MAX_REQUEST = 1000  # bytes
MAX_READERS = 4  # requests that are read at a time
READ_SECONDS = 2.0

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class Health:
    """The health service: whether this server accepts clients."""

    def __init__(self) -> None:
        self.serving = True
        self._reading = 0

    async def check(self, requests: object, context: Any) -> None:
        """Serve one call, as a stream of which one message is read."""
        if self._reading < MAX_READERS:
            self._reading += 1
            try:
                async with asyncio.timeout(READ_SECONDS):
                    await self._read(context)
            except TimeoutError:
                await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "no request arrived")
            finally:
                self._reading -= 1
        status = SERVING if self.serving else NOT_SERVING
        await context.write(health_pb2.HealthCheckResponse(status=status).SerializeToString())

    async def _read(self, context: Any) -> None:
        """Read a request, and abort unless it is short and asks for the server as a whole."""
        data = await context.read()
        data = b"" if data is grpc.aio.EOF else data
        if len(data) > MAX_REQUEST:
            problem = f"the request has {len(data):,} bytes; {MAX_REQUEST:,} are allowed"
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, problem)
        try:
            request = health_pb2.HealthCheckRequest.FromString(data)
        except DecodeError:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "not a HealthCheckRequest")
        if request.service:
            await context.abort(grpc.StatusCode.NOT_FOUND, "unknown service: ask for the server as a whole, service ''")
