"""gRPC's health protocol, as much of it as probes need: ``Check``, for the server as a whole.

Anybody may ask, so asking must be cheap. A request is read by hand, and not by gRPC, which would hold as much of it as
it is told to allow for models, for every caller at once. While some are being read, others are answered unread: there
is one answer for all who ask something sensible.
"""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2

CHECK = "/grpc.health.v1.Health/Check"
LARGEST_REQUEST = 1000  # bytes
AT_ONCE = 4  # requests that are read
READ_SECONDS = 2.0

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class Health:
    """Whether this server takes clients."""

    def __init__(self) -> None:
        self.serving = True
        self._reading = 0

    async def check(self, requests: object, context: Any) -> None:
        """One call. To gRPC it is a stream of which one message is read."""
        if self._reading < AT_ONCE:
            self._reading += 1
            try:
                async with asyncio.timeout(READ_SECONDS):
                    await self._read(context)
            except TimeoutError:
                await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "no request came")
            finally:
                self._reading -= 1
        status = SERVING if self.serving else NOT_SERVING
        await context.write(health_pb2.HealthCheckResponse(status=status).SerializeToString())

    async def _read(self, context: Any) -> None:
        """Read a request, and refuse it unless it is short and asks for the server as a whole."""
        data = await context.read()
        data = b"" if data is grpc.aio.EOF else data
        if len(data) > LARGEST_REQUEST:
            said = f"a request of {len(data):,} bytes; {LARGEST_REQUEST:,} are allowed"
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, said)
        try:
            request = health_pb2.HealthCheckRequest.FromString(data)
        except DecodeError:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "not a HealthCheckRequest")
        if request.service:
            await context.abort(grpc.StatusCode.NOT_FOUND, "only the server as a whole is known here: the service ''")
