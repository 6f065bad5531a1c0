"""A process that shares one port among several listeners: it forwards each connection according to its first bytes.

gRPC owns the sockets that it listens on, so another listener can only share its port behind a forwarder. The front is a
separate process, because the event loop of the server process is the bottleneck of a deployment. It does not terminate
TLS. The listeners are Unix sockets in a private folder.

``python -m spyker.net.front FD MOST SERVICE=PATH …`` accepts connections from the listening socket FD, at most MOST at
once, until its standard input is closed. That happens when the server process ends, however it ends. On its standard
input the server says which connections are authenticated (``+NAME``) and which are not any more (``-NAME``); the front
closes others that exceed the limits, and says so on its standard output (``REASON NAME``). It connects to a listener
from an abstract Unix address that contains the caller's name, so that the server knows who calls.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from spyker.errors import DeploymentError
from spyker.net.connection_guard import PASS_SECONDS, Report
from spyker.net.connection_limits import AUTHENTICATION_BYTES, FLOOD, AuthenticatedPeers, Connection, excess
from spyker.net.first_bytes import CLIENTS, MOST, Unreadable, service_of
from spyker.net.network_ban import BannedNetworks, attach
from spyker.net.peer_address import forwarded_address, network_of, socket_name

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
        self.authenticated = False
        self.connection: Connection
        self._first = b""
        self._linking: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the first bytes."""
        super().connection_made(transport)
        name = socket_name(transport.get_extra_info("peername"))
        self.connection = Connection(name, asyncio.get_running_loop().time())
        if len(self.front.callers) >= self.front.most:
            self.transport.abort()
        self.front.callers[name] = self

    def data_received(self, data: bytes) -> None:
        """Inspect the first bytes, and forward the rest."""
        if not self.authenticated:
            self.connection.received += len(data)
            if self.connection.received > AUTHENTICATION_BYTES:
                self.front.close(self, FLOOD)
                return
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
        loop, ours = asyncio.get_running_loop(), socket.socket(socket.AF_UNIX)
        try:
            ours.setblocking(False)
            with contextlib.suppress(OSError):  # without a name, the server does not know who calls
                ours.bind(forwarded_address(os.getpid(), self.connection.peer))
            await loop.sock_connect(ours, path)
            _, other = await loop.create_unix_connection(Side, sock=ours)
        except OSError:
            ours.close()
            self.transport.abort()
            return
        if self.transport.is_closing():
            other.transport.abort()
            return
        other.transport.write(self._first)
        self._first = b""
        self.other, other.other = other, self
        self.transport.resume_reading()

    def authenticate(self, now: float, *, authenticated: bool) -> None:
        """Set whether the connection has an authenticated stream."""
        self.authenticated = authenticated
        if not authenticated:
            self.connection.since, self.connection.received = now, 0

    def connection_lost(self, exc: Exception | None) -> None:
        """Close the other side."""
        if self.front.callers.get(self.connection.peer) is self:
            del self.front.callers[self.connection.peer]
        super().connection_lost(exc)


class Front:
    """Forwards connections."""

    def __init__(self, paths: Mapping[str, str], most: int) -> None:
        self.paths, self.most = paths, most
        self.callers: dict[str, Caller] = {}
        self.trusted = set[str]()
        self.bans = BannedNetworks(self.trusted)

    async def run(self, listening: socket.socket) -> None:
        """Accept connections until standard input is closed."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        server = await loop.create_server(lambda: Caller(self), sock=listening, backlog=1024)
        guard = asyncio.create_task(self._guard(listening))
        while line := await reader.readline():
            said = line.decode().strip()
            caller = self.callers.get(said[1:])
            if caller is not None:
                caller.authenticate(loop.time(), authenticated=said[0] == "+")
                self.trusted.add(network_of(caller.connection.peer))
        guard.cancel()
        server.close()

    async def _guard(self, listening: socket.socket) -> None:
        """Close connections that exceed the limits, and ban networks that flood."""
        now, banned = asyncio.get_running_loop().time, frozenset[str]()
        while True:
            await asyncio.sleep(PASS_SECONDS)
            if (current := self.bans.current(now())) != banned:
                banned = current
                attach(listening, banned)
            strangers = [caller.connection for caller in self.callers.values() if not caller.authenticated]
            authenticated = len(self.callers) - len(strangers)
            for connection, reason in excess(strangers, authenticated, self.most, now()):
                self.close(self.callers[connection.peer], reason)

    def close(self, caller: Caller, reason: str) -> None:
        """Close a connection."""
        caller.transport.abort()
        if reason == FLOOD:
            self.bans.ban(network_of(caller.connection.peer), asyncio.get_running_loop().time())
        with contextlib.suppress(OSError):
            print(reason, caller.connection.peer, flush=True)


class FrontProcess:
    """The front process, as seen by the server process."""

    def __init__(self, listening: socket.socket) -> None:
        self._socket = listening
        self.port = int(listening.getsockname()[1])
        self._process: asyncio.subprocess.Process

    async def start(
        self, paths: Mapping[str, Path], most: int, authenticated: AuthenticatedPeers, report: Report
    ) -> None:
        """Start to accept connections; ``report`` is called with the reason and the name of each that is closed."""
        number = self._socket.fileno()
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "spyker.net.front",
            str(number),
            str(most),
            *(f"{service}={path}" for service, path in paths.items()),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            pass_fds=(number,),
        )
        self._socket.close()
        self._report = report
        authenticated.changed = self._tell

    def _tell(self, peer: str, authenticated: bool) -> None:
        """Tell the process whether a connection is authenticated."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.write(f"{'+' if authenticated else '-'}{peer}\n".encode())

    async def watch(self) -> None:
        """Raise an error when the process ends: no connection is accepted any more."""
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            reason, _, peer = line.decode().strip().partition(" ")
            self._report(reason, peer)
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
