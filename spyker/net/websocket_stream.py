"""WebSocket as a transport for frames: what both sides share, and the client's side.

A binary message is a frame. A text message is the status with which the server ends the stream, like gRPC's trailers:
the close frame of a WebSocket has no room for it, because its reason is limited to 123 bytes. The path is a prefix, by
which reverse proxies distinguish the transports, and gRPC's method name.
"""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
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
CLOSE_SECONDS = 2.0  # for the closing handshake
SILENCE = 1.5  # × keepalive: close a connection on which nothing arrives for so long
CODES = {code.name: code for code in grpc.StatusCode}

QUIET = logging.getLogger("spyker.websocket")
QUIET.setLevel(logging.CRITICAL)  # anybody can make handshakes fail; what matters is in the JSON log


def limits(keepalive: float) -> dict[str, Any]:
    """Return the options of both sides of a connection.

    There is no timeout for pongs: on a slow link a pong waits behind a model. See :func:`end_if_silent`.
    """
    return {
        "compression": None,
        "ping_interval": keepalive,
        "ping_timeout": None,
        "open_timeout": HANDSHAKE_SECONDS,
        "close_timeout": CLOSE_SECONDS,
        "max_size": FRAME_LIMIT + (1 << 16),  # as for gRPC
        "max_queue": (1, 0),
        "write_limit": 1 << 20,
        "logger": QUIET,
    }


class Heard(Connection):
    """A connection that knows when it last received anything."""

    heard = 0.0

    def data_received(self, data: bytes) -> None:
        """Receive bytes."""
        self.heard = self.loop.time()
        super().data_received(data)


class HeardClientConnection(Heard, ClientConnection):
    """The client's side of a connection."""


async def end_if_silent(connection: Heard, keepalive: float) -> None:
    """Abort a connection on which nothing arrives although both sides send pings."""
    connection.heard = connection.loop.time()
    while True:
        await asyncio.sleep(keepalive / 2)
        now = connection.loop.time()
        if not connection.transport.is_reading():
            connection.heard = now  # the pings wait in the socket
        elif now - connection.heard > SILENCE * keepalive:
            connection.transport.abort()
            return


def write_status(code: grpc.StatusCode, details: str) -> str:
    """Return the text message for a status."""
    return json.dumps({"code": code.name, "details": details})


def read_status(text: str) -> tuple[grpc.StatusCode, str]:
    """Return the status in a text message."""
    try:
        said = json.loads(text)
        return CODES[said["code"]], str(said["details"])
    except (ValueError, LookupError, TypeError):
        return grpc.StatusCode.UNKNOWN, "not a status of this protocol"


class WebSocketStream:
    """A client's stream, with the methods of gRPC's streams."""

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
        """Send a frame; wait while the server reads nothing."""
        try:
            await self._connection.send(frame)
        except ConnectionClosed:
            if self._cancelled:
                raise asyncio.CancelledError from None
            raise StreamEnded(await self.code(), await self.details()) from None

    async def done_writing(self) -> None:
        """Do nothing: the server ends the stream after a goodbye."""

    async def code(self) -> grpc.StatusCode:
        """Return the status, once the stream has ended."""
        return (await self._final())[0]

    async def details(self) -> str:
        """Return the reason, once the stream has ended."""
        return (await self._final())[1]

    def cancel(self) -> None:
        """Abort the connection."""
        self._cancelled = True
        self._watch.cancel()
        self._connection.transport.abort()

    async def _final(self) -> tuple[grpc.StatusCode, str]:
        while self._status is None:
            if self._reading:
                await self._ended.wait()  # the reader finds it
            else:
                await self.read()
        return self._status

    def _end(self, code: grpc.StatusCode, details: str) -> None:
        self._status = code, details
        self._ended.set()
        self._watch.cancel()


def client_tls(authority: bytes) -> ssl.SSLContext:
    """Return the TLS options for servers with certificates of this authority."""
    context = ssl.create_default_context(cadata=authority.decode())
    context.set_alpn_protocols(["http/1.1"])
    return context


async def open_websocket(
    address: str,
    method: str,
    *,
    keepalive: float,
    tls: ssl.SSLContext | None,
    proxy: str | Literal[True] | None,
) -> WebSocketStream:
    """Open a stream; raise :class:`~spyker.net.streams.StreamEnded` with the status UNAVAILABLE if that fails."""
    uri = f"{'ws' if tls is None else 'wss'}://{address}{PREFIX}{method}"
    try:
        connection = await connect(
            uri,
            ssl=tls,
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
    """Return the exception for a stream that could not be opened."""
    return StreamEnded(grpc.StatusCode.UNAVAILABLE, said)
