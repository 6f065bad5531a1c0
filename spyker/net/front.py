"""A process that shares one port among several listeners: it forwards each connection according to its first bytes.

gRPC owns the sockets that it listens on, so another listener can only share its port behind a forwarder. The front is a
separate process, because the event loop of the server process is the bottleneck of a deployment. It does not terminate
TLS. The listeners are Unix sockets in a private folder.

``python -m spyker.net.front FD MOST SERVICE=PATH …`` accepts connections from the listening socket FD, at most MOST at
once, until its standard input is closed. That happens when the server process ends, however it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from spyker.errors import DeploymentError
from spyker.net.first_bytes import CLIENTS, MOST, Unreadable, service_of

HANDSHAKE_SECONDS = 10.0
BUFFER = 1 << 20  # bytes of a connection that wait for a slow reader


class Side(asyncio.Protocol):
    """One side of a forwarded connection."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self.other: Side | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start."""
        assert isinstance(transport, asyncio.Transport)
        transport.set_write_buffer_limits(BUFFER)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Forward bytes."""
        if self.other is not None:
            self.other.transport.write(data)

    def pause_writing(self) -> None:
        """Stop reading from the other side: this one reads too slowly."""
        if self.other is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        """Continue to read from the other side."""
        if self.other is not None:
            self.other.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Close the other side once everything is sent."""
        if self.other is not None:
            self.other.transport.close()


class Caller(Side):
    """The accepted side of a connection, which is not forwarded until its service is known."""

    def __init__(self, front: Front) -> None:
        super().__init__()
        self.front = front
        self._first = b""
        self._linking: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the first bytes, with a deadline."""
        super().connection_made(transport)
        self.front.callers.add(self)
        if len(self.front.callers) > self.front.most:
            self.transport.abort()
        self._deadline = asyncio.get_running_loop().call_later(HANDSHAKE_SECONDS, self.transport.abort)

    def data_received(self, data: bytes) -> None:
        """Inspect the first bytes, and forward the rest."""
        if self.other is not None:
            self.other.transport.write(data)
            return
        self._first += data
        if self._linking is not None:
            return
        try:
            service = service_of(self._first)
        except Unreadable:
            self.transport.abort()
            return
        if service is not None:
            path = self.front.paths.get(service, self.front.paths[CLIENTS])  # gRPC reports what it does not serve
            self._linking = asyncio.ensure_future(self._link(path))
            self.transport.pause_reading()
        elif len(self._first) > MOST:
            self.transport.abort()

    async def _link(self, path: str) -> None:
        try:
            _, other = await asyncio.get_running_loop().create_unix_connection(Side, path)
        except OSError:
            self.transport.abort()
            return
        self._deadline.cancel()
        if self.transport.is_closing():
            other.transport.abort()
            return
        other.transport.write(self._first)
        self._first = b""
        self.other, other.other = other, self
        self.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Close the other side."""
        self._deadline.cancel()
        self.front.callers.discard(self)
        super().connection_lost(exc)


class Front:
    """Forwards connections."""

    def __init__(self, paths: Mapping[str, str], most: int) -> None:
        self.paths, self.most = paths, most
        self.callers: set[Caller] = set()

    async def run(self, listening: socket.socket) -> None:
        """Accept connections until standard input is closed."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        server = await loop.create_server(lambda: Caller(self), sock=listening, backlog=1024)
        await reader.read()
        server.close()


class FrontProcess:
    """The front process, as seen by the server process."""

    def __init__(self, listening: socket.socket) -> None:
        self._socket = listening
        self.port = int(listening.getsockname()[1])
        self._process: asyncio.subprocess.Process

    async def start(self, paths: Mapping[str, Path], most: int) -> None:
        """Start to accept connections."""
        number = self._socket.fileno()
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "spyker.net.front",
            str(number),
            str(most),
            *(f"{service}={path}" for service, path in paths.items()),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            pass_fds=(number,),
        )
        self._socket.close()

    async def watch(self) -> None:
        """Raise an error when the process ends: no connection is accepted any more."""
        code = await self._process.wait()
        raise DeploymentError(f"the process in front of the clients' port ended with exit code {code}")

    async def stop(self) -> None:
        """Stop the process."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        await self._process.wait()


def main(arguments: Sequence[str]) -> None:
    """Run the front."""
    number, most, *paths = arguments
    for stop in (signal.SIGTERM, signal.SIGINT):  # systemd sends them to the front, too, while the server drains
        signal.signal(stop, signal.SIG_IGN)
    front = Front(dict(each.split("=", 1) for each in paths), int(most))
    asyncio.run(front.run(socket.socket(fileno=int(number))))


if __name__ == "__main__":
    main(sys.argv[1:])
