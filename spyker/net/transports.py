"""How a client connects to servers: over gRPC or WebSocket, directly or through an HTTP proxy."""

from __future__ import annotations

import contextlib
import json
import re
import ssl
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import grpc
import grpc.aio

from spyker.errors import UsageError
from spyker.net.channels import channel, open_stream
from spyker.net.streams import end_status
from spyker.net.websocket_stream import client_tls, open_websocket
from spyker.node.rejection import Rejection
from spyker.untrusted_files import read_json

GRPC, WEBSOCKET, AUTO = "grpc", "websocket", "auto"
TRANSPORTS = (AUTO, GRPC, WEBSOCKET)
REMEMBERED = "transports.json"

# Sent by the server itself, so the transport works.
FROM_THE_SERVER = {
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.OK,
}
# Errors that are the same for all transports: nothing listens, the host is unknown, the certificate is wrong, the HTTP
# proxy rejects the client, or a reverse proxy cannot reach the server.
NOT_THE_TRANSPORT = re.compile(
    r"[Rr]efused|DNS|Name or service|No route|unreachable|CERTIFICATE_(VERIFY_FAILED|REQUIRED)"
    r"|No match found for server|HTTP proxy returned|[Ss]tatus:? 50[234]"
)


@dataclass(frozen=True, slots=True)
class NetworkOptions:
    """Transport and proxy of the clients of a process."""

    keepalive: float
    """Seconds between pings."""
    transport: str = AUTO
    """``grpc``, ``websocket``, or ``auto``: gRPC first, then WebSocket."""
    proxy: str | None = None
    """URL of an HTTP proxy; ``None``: that of the environment."""
    state: Path | None = None
    """Folder in which ``auto`` remembers the transport of each address."""


class TransportChoice:
    """The transport that works at each address, shared by the clients of a process."""

    def __init__(self, setting: str, folder: Path | None = None) -> None:
        """``setting`` is one of :data:`TRANSPORTS`; ``auto`` remembers its choices in the folder."""
        self._setting = setting
        self._file = None if folder is None or setting != AUTO else folder / REMEMBERED
        self._next: dict[str, str] = {}
        self._remembered: dict[str, str] = {}
        if self._file is not None:
            with contextlib.suppress(OSError, ValueError, AttributeError):  # start without memory
                found = read_json(self._file)
                self._remembered = {a: t for a, t in found.items() if t in (GRPC, WEBSOCKET)}
                self._next |= self._remembered

    def of(self, address: str) -> str:
        """Return the transport for the next connection."""
        return self._next.get(address, GRPC) if self._setting == AUTO else self._setting

    def worked(self, address: str, transport: str) -> None:
        """Remember that a server has answered over this transport."""
        if self._setting != AUTO or self._remembered.get(address) == transport:
            return
        self._next[address] = self._remembered[address] = transport
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.parent.mkdir(parents=True, exist_ok=True)
                self._file.write_text(json.dumps(self._remembered, indent=2) + "\n", "utf-8")

    def failed(self, address: str, transport: str, code: grpc.StatusCode, said: str) -> bool:
        """Note that a connection ended before the server answered; return whether the other transport is next."""
        if self._setting != AUTO or code in FROM_THE_SERVER or NOT_THE_TRANSPORT.search(said):
            return False
        self._next[address] = WEBSOCKET if transport == GRPC else GRPC
        return True


class Connections:
    """A client's connections by address.

    Clients of a process do not share connections, so that a slow transfer to one does not delay the others.
    """

    def __init__(self, options: NetworkOptions, choice: TransportChoice, authority: bytes | None) -> None:
        """``authority`` is the certificate of the servers' authority; ``None``: plaintext."""
        self._options, self._choice, self._authority = options, choice, authority
        self._credentials = None if authority is None else grpc.ssl_channel_credentials(authority)
        self._tls: ssl.SSLContext | None = None if authority is None else client_tls(authority)
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._used: dict[str, str] = {}

    async def open(self, address: str, method: str) -> Any:
        """Open a stream of frames, which has the methods of gRPC's streams."""
        options = self._options
        self._used[address] = self._choice.of(address)
        if self._used[address] == WEBSOCKET:
            proxy = websocket_proxy(options.proxy, address)
            return await open_websocket(address, method, keepalive=options.keepalive, tls=self._tls, proxy=proxy)
        if address not in self._channels:
            self._channels[address] = channel(address, options.keepalive, self._credentials, proxy=options.proxy)
        return open_stream(self._channels[address], method)

    async def leave_others(self, address: str) -> None:
        """Close the connections to all other servers, which would close them with a warning: nobody is left on them."""
        for other in [each for each in self._channels if each != address]:
            await self._channels.pop(other).close()

    def worked(self, address: str) -> str:
        """Note that the server has answered, and return the transport."""
        self._choice.worked(address, self._used[address])
        return self._used[address]

    def failed(self, address: str, error: BaseException) -> bool:
        """Note that the connection ended before the server answered; return whether another transport is next."""
        used = self._used.get(address)
        if used is None or isinstance(error, Rejection):  # what is rejected has come from a server
            return False
        return self._choice.failed(address, used, *end_status(error))

    @contextlib.asynccontextmanager
    async def temporary(self) -> AsyncIterator[Connections]:
        """Yield separate connections with the same options, and close them at the end."""
        separate = Connections(self._options, self._choice, self._authority)
        try:
            yield separate
        finally:
            await separate.close()

    async def close(self) -> None:
        """Close all connections."""
        for each in self._channels.values():
            await each.close()


def websocket_proxy(proxy: str | None, address: str) -> str | Literal[True] | None:
    """Return the proxy for a WebSocket. As in gRPC, ``no_proxy`` also applies to an explicit proxy."""
    if proxy is None:
        return True  # that of the environment
    return None if urllib.request.proxy_bypass(address) else proxy


def check_proxy(proxy: str, key: str) -> str:
    """Check the URL of an HTTP proxy and return it; error messages name the option ``key``, but not the password."""
    remedy = 'Write "http://user:password@host:port", with special characters as %40; the user may be left out'
    try:
        url = urllib.parse.urlsplit(proxy)
        port = url.port
    except ValueError:
        raise UsageError(key, "is not a URL", remedy) from None
    if url.scheme != "http":
        raise UsageError(key, f"{url.scheme or 'no scheme'} is not allowed: the scheme must be http", remedy)
    if not url.hostname or port is None or url.path not in ("", "/") or url.query or url.fragment:
        raise UsageError(key, f"{without_password(proxy)} is not allowed", remedy)
    if url.username is not None and url.password is None:
        raise UsageError(key, f"has a user ({url.username}) without a password", remedy)
    return proxy


def without_password(proxy: str) -> str:
    """Return the URL of a proxy without user and password."""
    return re.sub(r"//[^@/]*@", "//***@", proxy)
