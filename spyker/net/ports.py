"""The ports of a server process: each listener at an address of its own, or several behind one port."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import grpc
import grpc.aio

from spyker.net.channels import bind, listen
from spyker.net.first_bytes import CLIENTS, PEERS, WEBSOCKET
from spyker.net.front import FrontProcess
from spyker.net.server_config import DeploymentOptions, shares_port
from spyker.net.websocket_port import WebSocketPort

KEYS = {CLIENTS: "listen-clients", PEERS: "listen-peers", WEBSOCKET: "listen-websocket"}


class Ports:
    """Opens and closes them. Listeners that share the clients' address stand behind a front process."""

    def __init__(self, deploy: DeploymentOptions, most: int, *, front: bool) -> None:
        """``most`` connections may be open at a shared port. ``front``: whether any other is at the clients' port."""
        self._deploy, self._most = deploy, most
        self._stops: list[Callable[[float], Awaitable[None]]] = []
        self._starts: list[Callable[[], Awaitable[None]]] = []
        self._behind: dict[str, Path] = {}
        self.numbers: dict[str, int] = {}
        self.front: FrontProcess | None = None
        if front:
            self.front = FrontProcess(bind(deploy.listen_clients, "deploy.listen-clients"))
            self._folder = Path(tempfile.mkdtemp(prefix="spyker-"))

    def add(self, service: str, server: grpc.aio.Server, credentials: grpc.ServerCredentials | None) -> None:
        """Add a gRPC server."""
        if (path := self._path(service)) is not None:
            listen(server, f"unix:{path}", credentials, f"deploy.{KEYS[service]}")
        else:
            address = self._deploy.listen_clients if service == CLIENTS else self._deploy.listen_peers
            self.numbers[service] = listen(server, address, credentials, f"deploy.{KEYS[service]}")
        self._starts.append(server.start)
        self._stops.append(server.stop)

    async def add_websocket(self, port: WebSocketPort, tls: ssl.SSLContext | None) -> None:
        """Add the port for WebSockets, which accepts them from now on."""
        assert self._deploy.listen_websocket is not None
        if (path := self._path(WEBSOCKET)) is not None:
            await port.listen_at(path, tls)
        else:
            self.numbers[WEBSOCKET] = await port.listen(self._deploy.listen_websocket, tls, "deploy.listen-websocket")
        self._stops.append(port.stop)

    def _path(self, service: str) -> Path | None:
        """The Unix socket of a listener behind the front."""
        if self.front is None or not shares_port(self._deploy, service):
            return None
        self._behind[service] = self._folder / service
        return self._behind[service]

    async def start(self) -> None:
        """Accept connections."""
        for start in self._starts:
            await start()
        if self.front is not None:
            await self.front.start(self._behind, self._most)
            self.numbers |= dict.fromkeys(self._behind, self.front.port)

    async def stop(self, grace: float) -> None:
        """Accept nothing more, and end what is open after some seconds."""
        await asyncio.gather(*(stop(grace) for stop in self._stops))
        if self.front is not None:
            await self.front.stop()
            shutil.rmtree(self._folder, ignore_errors=True)
