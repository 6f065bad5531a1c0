"""One port for several listeners: a process that passes each connection on, by its first bytes.

gRPC owns the sockets that it listens on, so what else is to be reached at the same port needs somebody in front. The
front is a process of its own: in the server's it would take time from the thread that everything there waits for.
TLS is not ended here. The listeners are Unix sockets in a private folder.

``python -m spyker.net.front FD MOST NAME=PATH …`` accepts connections from the socket FD, at most MOST at once, until
its standard input ends, which it does with the process that started it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from spyker.errors import DeploymentError
from spyker.net.first_bytes import CLIENTS, MOST, Unreadable, service_of

HANDSHAKE_SECONDS = 10.0
BUFFER = 1 << 20  # bytes of a connection that are held for whoever reads too slowly


class Side(asyncio.Protocol):
    """One side of a connection that is passed on."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self.other: Side | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is there."""
        assert isinstance(transport, asyncio.Transport)
        transport.set_write_buffer_limits(BUFFER)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Pass bytes on."""
        if self.other is not None:
            self.other.transport.write(data)

    def pause_writing(self) -> None:
        """Whoever reads here is slower: wait for it."""
        if self.other is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        """Go on."""
        if self.other is not None:
            self.other.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the other side, too, once it has got everything."""
        if self.other is not None:
            self.other.transport.close()


class Caller(Side):
    """The side of whoever connects, until it is known what it wants."""

    def __init__(self, front: Front) -> None:
        super().__init__()
        self.front = front
        self._first = b""
        self._linking: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the first bytes, but not for long."""
        super().connection_made(transport)
        self.front.callers.add(self)
        if len(self.front.callers) > self.front.most:
            self.transport.abort()
        self._deadline = asyncio.get_running_loop().call_later(HANDSHAKE_SECONDS, self.transport.abort)

    def data_received(self, data: bytes) -> None:
        """Look at the first bytes, or pass them on."""
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
            path = self.front.paths.get(service, self.front.paths[CLIENTS])  # which says that it does not serve this
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
        """End the other side, too."""
        self._deadline.cancel()
        self.front.callers.discard(self)
        super().connection_lost(exc)


class Front:
    """Passes connections on."""

    def __init__(self, paths: Mapping[str, str], most: int) -> None:
        self.paths, self.most = paths, most
        self.callers: set[Caller] = set()

    async def run(self, listening: socket.socket) -> None:
        """Accept connections until standard input ends."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        server = await loop.create_server(lambda: Caller(self), sock=listening, backlog=1024)
        await reader.read()
        server.close()


class FrontProcess:
    """The front as a process beside the server's."""

    def __init__(self, listening: socket.socket) -> None:
        self._socket = listening
        self.port = int(listening.getsockname()[1])
        self._process: asyncio.subprocess.Process

    async def start(self, paths: Mapping[str, Path], most: int) -> None:
        """Begin to accept connections."""
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
            start_new_session=True,  # Ctrl-C is for the server, which ends this one last
        )
        self._socket.close()

    async def watch(self) -> None:
        """Fail when the process ends: nobody could connect any more."""
        code = await self._process.wait()
        raise DeploymentError(f"the process in front of the clients' port ended with exit code {code}")

    async def stop(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        await self._process.wait()


def main(arguments: Sequence[str]) -> None:
    """Be the front."""
    number, most, *paths = arguments
    front = Front(dict(each.split("=", 1) for each in paths), int(most))
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(front.run(socket.socket(fileno=int(number))))


if __name__ == "__main__":
    main(sys.argv[1:])
