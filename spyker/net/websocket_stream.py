"""WebSocket as a transport for frames: what both ends share, and the client's end.

One binary message is one frame. A text message is the status with which the server ends the stream, as gRPC's trailers
are: the reason in a WebSocket's close frame may have 123 bytes only. A path is a prefix and
gRPC's name of the method, so that a reverse proxy can tell the transports apart.
"""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import Sequence
from typing import Any, Literal

import grpc
import grpc.aio
from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.connection import Connection
from websockets.exceptions import (
    ConnectionClosed,
    ConnectionClosedOK,
    InvalidHandshake,
    InvalidProxyStatus,
    InvalidStatus,
)

from spyker.net.channels import HANDSHAKE_SECONDS
from spyker.net.frames import FRAME_LIMIT
from spyker.net.streams import StreamEnded

PREFIX = "/websocket"
CLOSE_SECONDS = 2.0  # for the other side to confirm the end
SILENT = 1.5  # × keepalive without a single byte, and the other side is gone
CODES = {code.name: code for code in grpc.StatusCode}

QUIET = logging.getLogger("spyker.websocket")
QUIET.setLevel(logging.CRITICAL)  # strangers decide how often a handshake fails; our own log says what matters


def limits(keepalive: float) -> dict[str, Any]:
    """For both ends of every connection.

    A pong may wait behind a model on a slow link, so a late one is no reason to disconnect: see :func:`end_if_silent`.
    """
    return {
        "compression": None,
        "ping_interval": keepalive,
        "ping_timeout": None,
        "open_timeout": HANDSHAKE_SECONDS,
        "close_timeout": CLOSE_SECONDS,
        "max_size": FRAME_LIMIT + (1 << 16),  # as for gRPC: what is a little too long we refuse ourselves
        "max_queue": (1, 0),
        "write_limit": 1 << 18,
        "logger": QUIET,
    }


class Heard(Connection):
    """A connection that knows when the other side was last heard."""

    heard = 0.0

    def data_received(self, data: bytes) -> None:
        """Take bytes from the network."""
        self.heard = self.loop.time()
        super().data_received(data)


class HeardClientConnection(Heard, ClientConnection):
    """The client's end."""


async def end_if_silent(connection: Heard, keepalive: float) -> None:
    """End a connection from which nothing is heard. Both sides send pings, so there is always something to hear."""
    connection.heard = connection.loop.time()
    while True:
        await asyncio.sleep(keepalive / 2)
        now = connection.loop.time()
        if not connection.transport.is_reading():
            connection.heard = now  # it is we who do not read
        elif now - connection.heard > SILENT * keepalive:
            connection.transport.abort()
            return


def write_status(code: grpc.StatusCode, details: str) -> str:
    """The text message that ends a stream."""
    return json.dumps({"code": code.name, "details": details})


def read_status(text: str) -> tuple[grpc.StatusCode, str]:
    """What such a message says."""
    try:
        said = json.loads(text)
        return CODES[said["code"]], str(said["details"])
    except (ValueError, LookupError, TypeError):
        return grpc.StatusCode.UNKNOWN, "not a status of this protocol"


class WebSocketStream:
    """A client's stream, with the methods of gRPC's."""

    def __init__(self, connection: HeardClientConnection, keepalive: float) -> None:
        self._connection = connection
        self._status: tuple[grpc.StatusCode, str] | None = None
        self._ended = asyncio.Event()
        self._reading = self._cancelled = False
        self._watch = asyncio.create_task(end_if_silent(connection, keepalive))

    async def read(self) -> Any:
        """Return the next frame, or ``grpc.aio.EOF`` at the end of the stream."""
        self._reading = True
        try:
            if self._status is None:
                data = await self._connection.recv()
                if not isinstance(data, str):
                    return data
                self._end(*read_status(data))
        except ConnectionClosed as closed:
            if self._cancelled:
                raise asyncio.CancelledError from None  # as gRPC does
            if isinstance(closed, ConnectionClosedOK):
                self._end(grpc.StatusCode.OK, "")
            else:
                self._end(grpc.StatusCode.UNAVAILABLE, f"the WebSocket was closed: {closed}")
        finally:
            self._reading = False
        return grpc.aio.EOF

    async def write(self, frame: bytes) -> None:
        """Send a frame; awaits while the other side takes nothing."""
        try:
            await self._connection.send(frame)
        except ConnectionClosed:
            if self._cancelled:
                raise asyncio.CancelledError from None
            raise StreamEnded(await self.code(), await self.details()) from None

    async def done_writing(self) -> None:
        """Nothing to send: the last frame is a goodbye, and the server ends the stream."""

    async def code(self) -> grpc.StatusCode:
        """The status of the stream, once it has ended."""
        return (await self._final())[0]

    async def details(self) -> str:
        """What the server said about it."""
        return (await self._final())[1]

    def cancel(self) -> None:
        """End the connection at once."""
        self._cancelled = True
        self._watch.cancel()
        self._connection.transport.abort()

    async def _final(self) -> tuple[grpc.StatusCode, str]:
        while self._status is None:
            if self._reading:
                await self._ended.wait()  # whoever reads finds the end
            else:
                await self.read()
        return self._status

    def _end(self, code: grpc.StatusCode, details: str) -> None:
        self._status = code, details
        self._ended.set()
        self._watch.cancel()


def client_tls(authority: bytes) -> ssl.SSLContext:
    """TLS to a server whose certificate this authority has issued."""
    context = ssl.create_default_context(cadata=authority.decode())
    context.set_alpn_protocols(["http/1.1"])
    return context


async def open_websocket(
    address: str,
    method: str,
    metadata: Sequence[tuple[str, str]],
    *,
    keepalive: float,
    tls: ssl.SSLContext | None,
    proxy: str | Literal[True] | None,
) -> WebSocketStream:
    """Begin a stream of raw frames. Whatever prevents it ends it with the status UNAVAILABLE."""
    uri = f"{'ws' if tls is None else 'wss'}://{address}{PREFIX}{method}"
    try:
        connection = await connect(
            uri,
            ssl=tls,
            additional_headers=list(metadata),
            user_agent_header=None,
            proxy=proxy,
            create_connection=HeardClientConnection,
            **limits(keepalive),
        )
    except InvalidProxyStatus as error:
        raise unavailable(f"HTTP proxy returned response code {error.response.status_code}") from None
    except InvalidStatus as error:
        raise unavailable(f"HTTP status {error.response.status_code} in place of a WebSocket") from None
    except (OSError, InvalidHandshake, EOFError) as error:  # a timeout is an OSError
        raise unavailable(f"no WebSocket: {str(error) or type(error).__name__}") from None
    assert isinstance(connection, HeardClientConnection)
    return WebSocketStream(connection, keepalive)


def unavailable(said: str) -> StreamEnded:
    """The end of a stream that never began."""
    return StreamEnded(grpc.StatusCode.UNAVAILABLE, said)
