"""Reading of streams, and the exceptions with which they end."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import grpc.aio

from spyker.net.frames import split
from spyker.node.rejection import Rejection


class StreamEnded(Exception):  # noqa: N818 - not an error
    """The other side ended the stream."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(details)
        self.code = code


STREAM_OVER = (
    StreamEnded,
    grpc.aio.AioRpcError,
    grpc.aio.AbortError,
    grpc.aio.InternalError,
    grpc.aio.UsageError,
    asyncio.InvalidStateError,
)
"""Exceptions that reading and writing raise once a stream has ended."""

CONNECTION_LOST = (*STREAM_OVER, TimeoutError, Rejection)
"""Exceptions after which the calling side reconnects: the stream ended, was too slow, or carried something invalid."""


async def read_frame(stream: Any) -> bytes:
    """Return the next frame, or raise :class:`StreamEnded`."""
    data = await stream.read()
    if data is grpc.aio.EOF:
        raise StreamEnded(await stream.code(), await stream.details())
    return bytes(data)


async def read_body(stream: Any, kind: str) -> Any:
    """Read a frame that must have a body of this kind, and no chunk."""
    _, frame = split(await read_frame(stream))
    if frame is None or frame.WhichOneof("body") != kind:
        raise Rejection("malformed", f"expected {kind}")
    return getattr(frame, kind)


def end_status(error: BaseException) -> tuple[grpc.StatusCode, str]:
    """Return the status and the reason with which the other side ended the connection."""
    if isinstance(error, grpc.aio.AioRpcError):
        return error.code(), str(error.details())
    if isinstance(error, StreamEnded):
        return error.code, str(error)
    return grpc.StatusCode.UNKNOWN, str(error) if isinstance(error, Rejection) else repr(error)
