"""The ports of a server process: each listener has its own, or several share the clients' port.

Callers that are not authenticated are limited at all of them (:mod:`~spyker.net.connection_limits`).
"""

from __future__ import annotations

import asyncio
import shutil
import ssl
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import grpc
import grpc.aio

from spyker.net.channels import bind, listen
from spyker.net.connection_guard import ConnectionGuard, Report
from spyker.net.connection_limits import AuthenticatedPeers
from spyker.net.first_bytes import CLIENTS, PEERS, WEBSOCKET
from spyker.net.front import FrontProcess
from spyker.net.server_config import DeploymentOptions, shares_port
from spyker.net.websocket_port import WebSocketPort


class Ports:
    """Opens and closes the ports. Listeners that share the clients' port are Unix sockets behind a front process."""

    def __init__(
        self, deploy: DeploymentOptions, most: Mapping[str, int], report: Report, *, peers: bool, insecure: bool
    ) -> None:
        """Decide which listeners share a port.

        Args:
            deploy: the addresses.
            most: maximum number of connections of each service.
            report: called, in any thread, with the reason and the peer's name of a connection that is closed.
            peers: whether there are other servers.
            insecure: whether other servers connect in plaintext.

        """
        self._deploy, self._most, self._report = deploy, most, report
        self.authenticated = AuthenticatedPeers()
        self._guard: ConnectionGuard | None = None
        shared_peers = peers and shares_port(deploy, PEERS)
        self.one_grpc = shared_peers and insecure
        """Whether one gRPC server serves clients and other servers: in plaintext, certificates need not differ."""
        self.front: FrontProcess | None = None
        self.numbers: dict[str, int | None] = dict.fromkeys((CLIENTS, PEERS, WEBSOCKET))
        self._paths: dict[str, Path] = {}
        self._starts: list[Callable[[], Awaitable[None]]] = []
        self._stops: list[Callable[[float], Awaitable[None]]] = []
        if shares_port(deploy, WEBSOCKET) or (shared_peers and not insecure):
            self.front = FrontProcess(bind(deploy.listen_clients, "deploy.listen-clients"))
            self._folder = Path(tempfile.mkdtemp(prefix="spyker-"))

    def add_clients(self, server: grpc.aio.Server, credentials: grpc.ServerCredentials | None) -> None:
        """Add the gRPC server for clients."""
        self._add(CLIENTS, server, credentials, self._deploy.listen_clients)

    def add_peers(self, server: grpc.aio.Server, credentials: grpc.ServerCredentials | None) -> None:
        """Add the gRPC server for other servers, unless it is the one for clients."""
        if self.one_grpc:
            self.numbers[PEERS] = self.numbers[CLIENTS]
        else:
            self._add(PEERS, server, credentials, self._deploy.listen_peers)

    def _add(
        self, service: str, server: grpc.aio.Server, credentials: grpc.ServerCredentials | None, address: str
    ) -> None:
        path = self._path(service)
        where = address if path is None else f"unix:{path}"
        self.numbers[service] = listen(server, where, credentials, f"deploy.listen-{service}")
        self._starts.append(server.start)
        self._stops.append(server.stop)

    async def add_websocket(self, port: WebSocketPort, tls: ssl.SSLContext | None) -> None:
        """Add the listener for WebSockets, and start it."""
        assert self._deploy.listen_websocket is not None
        if (path := self._path(WEBSOCKET)) is not None:
            await port.listen_at(path, tls)
        else:
            self.numbers[WEBSOCKET] = await port.listen(self._deploy.listen_websocket, tls, "deploy.listen-websocket")
        self._stops.append(port.stop)

    def _path(self, service: str) -> Path | None:
        """Return the Unix socket of a listener behind the front."""
        if self.front is None or not shares_port(self._deploy, service):
            return None
        self._paths[service] = self._folder / service
        return self._paths[service]

    async def start(self) -> None:
        """Accept connections."""
        for start in self._starts:
            await start()
        if self.front is not None:
            most = sum(self._most[service] for service in self._paths)
            await self.front.start(self._paths, most, self.authenticated, self._report)
            self.numbers |= dict.fromkeys(self._paths, self.front.port)
            if self.one_grpc:
                self.numbers[PEERS] = self.front.port
        guarded = {
            number: self._most[service]
            for service, number in self.numbers.items()
            if number is not None and service not in self._paths
        }
        self._guard = ConnectionGuard(guarded, self.authenticated, self._report)
        self._guard.start()

    async def stop(self, grace: float) -> None:
        """Accept no more connections, and close the open ones after ``grace`` seconds."""
        await asyncio.gather(*(stop(grace) for stop in self._stops))
        if self._guard is not None:
            self._guard.stop()
        if self.front is not None:
            await self.front.stop()
            shutil.rmtree(self._folder, ignore_errors=True)
