"""The server's side of WebSockets: it serves the same streams of frames with the same handlers as the gRPC port."""

from __future__ import annotations

import asyncio
import contextlib
import http
import ssl
import traceback
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

import grpc
import grpc.aio
from websockets.asyncio.server import Server, ServerConnection, serve, unix_serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from spyker.net.channels import bind
from spyker.net.json_log import JsonLog
from spyker.net.peer_address import socket_name
from spyker.net.streams import STREAM_OVER, StreamEnded
from spyker.net.websocket_stream import CLOSE_SECONDS, PREFIX, Heard, end_if_silent, limits, write_status
from spyker.node.rejection import Rejection

Handler: TypeAlias = Callable[[object, Any], Awaitable[None]]


class HeardServerConnection(Heard, ServerConnection):
    """A connection to a client."""


class WebSocketContext:
    """A stream for a handler, with the methods of gRPC's context that handlers use."""

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection

    def peer(self) -> str:
        """Return the client's address in gRPC's notation."""
        return socket_name(self._connection.remote_address)

    async def read(self) -> Any:
        """Return the next frame, or ``grpc.aio.EOF`` at the end of the stream."""
        try:
            data = await self._connection.recv()
        except ConnectionClosed:
            return grpc.aio.EOF
        if isinstance(data, str):
            raise Rejection("malformed", "a text message; clients send binary messages only")
        return data

    async def write(self, frame: bytes) -> None:
        """Send a frame; wait while the client reads nothing."""
        try:
            await self._connection.send(frame)
        except ConnectionClosed:
            raise StreamEnded(grpc.StatusCode.CANCELLED, "the WebSocket is closed") from None

    async def abort(self, code: grpc.StatusCode, details: str = "") -> NoReturn:
        """End the stream with a status, and the handler with an exception."""
        with contextlib.suppress(ConnectionClosed, TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._connection.send(write_status(code, details))
        raise grpc.aio.AbortError(details)


class WebSocketPort:
    """Accepts WebSockets and runs the handler of each one's method."""

    def __init__(self, handlers: Mapping[str, Handler], keepalive: float, most: int, log: JsonLog) -> None:
        """``most`` is the maximum number of connections, handshakes included."""
        self._handlers = {f"{PREFIX}{method}": handler for method, handler in handlers.items()}
        self._keepalive, self._most, self._log = keepalive, most, log
        self._open = 0
        self._server: Server | None = None

    async def listen(self, address: str, tls: ssl.SSLContext | None, key: str) -> int:
        """Listen on ``host:port`` and return the port; ``key`` is the option's name in error messages."""
        listening = bind(address, key)
        self._server = await serve(self._serve, sock=listening, ssl=tls, **self._options())
        return int(listening.getsockname()[1])

    async def listen_at(self, path: Path, tls: ssl.SSLContext | None) -> None:
        """Listen on a Unix socket."""
        self._server = await unix_serve(self._serve, str(path), ssl=tls, **self._options())

    async def stop(self, grace: float) -> None:
        """Accept no more connections, and close the open ones."""
        if self._server is not None:
            self._server.close()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace + CLOSE_SECONDS):
                    await self._server.wait_closed()

    def _options(self) -> dict[str, Any]:
        port = self

        class Counted(HeardServerConnection):
            """A connection that counts from its first byte."""

            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                port._open += 1
                super().connection_made(transport)
                if port._open > port._most:
                    self.transport.abort()

            def connection_lost(self, exc: Exception | None) -> None:
                port._open -= 1
                super().connection_lost(exc)

        return limits(self._keepalive) | {
            "create_connection": Counted,
            "process_request": self._check_path,
            "server_header": None,
        }

    def _check_path(self, connection: ServerConnection, request: Request) -> Response | None:
        if request.path in self._handlers:
            return None
        return connection.respond(http.HTTPStatus.NOT_FOUND, "Nothing is served here.\n")

    async def _serve(self, connection: ServerConnection) -> None:
        """Run a handler. As with gRPC, it is cancelled when its connection is gone."""
        assert connection.request is not None
        assert isinstance(connection, Heard)
        handler = self._handlers[connection.request.path]
        handling = asyncio.ensure_future(self._handle(handler, WebSocketContext(connection)))
        gone = asyncio.create_task(connection.wait_closed())
        watch = asyncio.create_task(end_if_silent(connection, self._keepalive))
        try:
            await asyncio.wait((handling, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (handling, gone, watch):
                task.cancel()
            await asyncio.wait((handling,))

    async def _handle(self, handler: Handler, context: WebSocketContext) -> None:
        try:
            await handler(None, context)
        except STREAM_OVER:
            return
        except Exception as error:
            self._log.error("stream-failed", error=repr(error), traceback="".join(traceback.format_exception(error)))


def server_tls(certificate: Path, key: Path) -> ssl.SSLContext:
    """Return the TLS options of a server with this certificate, for HTTP/1.1."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.set_alpn_protocols(["http/1.1"])
    return context
