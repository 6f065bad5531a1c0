"""How a client reaches its servers: over gRPC or WebSocket, directly or through an HTTP proxy."""

from __future__ import annotations

import contextlib
import json
import re
import ssl
import urllib.parse
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import grpc
import grpc.aio

from spyker.errors import UsageError
from spyker.net.channels import channel, open_stream
from spyker.net.websocket_stream import client_tls, open_websocket

GRPC, WEBSOCKET, AUTO = "grpc", "websocket", "auto"
TRANSPORTS = (AUTO, GRPC, WEBSOCKET)
REMEMBERED = "transports.json"

# The server itself has spoken, so the transport works; another one would be told the same.
FROM_THE_SERVER = {
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.OK,
}
# No transport would get any further: nobody listens, the host is unknown, the certificate is wrong, the proxy refuses
# us, or a reverse proxy finds no server behind it.
NOT_THE_TRANSPORT = re.compile(
    r"[Rr]efused|DNS|Name or service|No route|unreachable|CERTIFICATE_(VERIFY_FAILED|REQUIRED)"
    r"|No match found for server|HTTP proxy returned|[Ss]tatus:? 50[234]"
)


@dataclass(frozen=True, slots=True)
class NetworkOptions:
    """How the clients of a process reach servers."""

    keepalive: float
    """Seconds between two pings."""
    transport: str = AUTO
    """``grpc``, ``websocket``, or ``auto``: gRPC first, then WebSocket."""
    proxy: str | None = None
    """URL of an HTTP proxy; None: as the environment says."""
    state: Path | None = None
    """Folder that remembers which transport works."""


class TransportChoice:
    """Which transport works at which address; all clients of a process share what they find out."""

    def __init__(self, setting: str, folder: Path | None = None) -> None:
        """``setting`` is one of :data:`TRANSPORTS`; with ``auto`` the choice is kept in the folder."""
        self._setting = setting
        self._file = None if folder is None or setting != AUTO else folder / REMEMBERED
        self._next: dict[str, str] = {}
        self._remembered: dict[str, str] = {}
        if self._file is not None:
            with contextlib.suppress(OSError, ValueError, AttributeError):  # it is only a hint
                found = json.loads(self._file.read_text("utf-8"))
                self._remembered = {a: t for a, t in found.items() if t in (GRPC, WEBSOCKET)}
                self._next |= self._remembered

    def of(self, address: str) -> str:
        """The transport to use for the next connection."""
        return self._next.get(address, GRPC) if self._setting == AUTO else self._setting

    def worked(self, address: str, transport: str) -> None:
        """A server has answered over this transport."""
        if self._setting != AUTO or self._remembered.get(address) == transport:
            return
        self._next[address] = self._remembered[address] = transport
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.parent.mkdir(parents=True, exist_ok=True)
                self._file.write_text(json.dumps(self._remembered, indent=2) + "\n", "utf-8")

    def failed(self, address: str, transport: str, code: grpc.StatusCode, said: str) -> bool:
        """A connection ended before the server answered; return whether the other transport is tried next."""
        if self._setting != AUTO or code in FROM_THE_SERVER or NOT_THE_TRANSPORT.search(said):
            return False
        self._next[address] = WEBSOCKET if transport == GRPC else GRPC
        return True


class Connections:
    """One client's connections by address.

    Clients of one process do not share any: what is large and slow on the way to one would hold up all the others.
    """

    def __init__(self, options: NetworkOptions, choice: TransportChoice, authority: bytes | None) -> None:
        """``authority`` has issued the servers' certificates; None: plaintext."""
        self._options, self._choice = options, choice
        self._credentials = None if authority is None else grpc.ssl_channel_credentials(authority)
        self._tls: ssl.SSLContext | None = None if authority is None else client_tls(authority)
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._used: dict[str, str] = {}

    async def open(self, address: str, method: str, metadata: Sequence[tuple[str, str]] = ()) -> Any:
        """Begin a stream of raw frames with the methods of gRPC's streams."""
        options = self._options
        self._used[address] = self._choice.of(address)
        if self._used[address] == WEBSOCKET:
            proxy = websocket_proxy(options.proxy, address)
            return await open_websocket(
                address, method, metadata, keepalive=options.keepalive, tls=self._tls, proxy=proxy
            )
        if address not in self._channels:
            self._channels[address] = channel(address, options.keepalive, self._credentials, proxy=options.proxy)
        return open_stream(self._channels[address], method, metadata)

    def worked(self, address: str) -> str:
        """The server has answered; return over which transport."""
        self._choice.worked(address, self._used[address])
        return self._used[address]

    def failed(self, address: str, code: grpc.StatusCode, said: str) -> bool:
        """The connection ended before the server answered; return whether another transport is tried next."""
        used = self._used.get(address)
        return used is not None and self._choice.failed(address, used, code, said)

    async def close(self) -> None:
        """Close all of them."""
        for each in self._channels.values():
            await each.close()


def websocket_proxy(proxy: str | None, address: str) -> str | Literal[True] | None:
    """The proxy for a WebSocket as gRPC would choose it: ``no_proxy`` counts for one that was named, too."""
    if proxy is None:
        return True  # as the environment says
    return None if urllib.request.proxy_bypass(address) else proxy


def check_proxy(proxy: str) -> str:
    """Check the URL of an HTTP proxy and return it. Errors never contain its password."""
    remedy = 'Write "http://user:password@host:port", with special characters as %40; the user may be left out'
    try:
        url = urllib.parse.urlsplit(proxy)
        port = url.port
    except ValueError:
        raise UsageError("--proxy", "is not a URL", remedy) from None
    if url.scheme != "http":
        raise UsageError("--proxy", f"{url.scheme or 'no scheme'} is not allowed: the scheme must be http", remedy)
    if not url.hostname or port is None or url.path not in ("", "/") or url.query or url.fragment:
        raise UsageError("--proxy", f"{without_password(proxy)} is not allowed", remedy)
    if url.username is not None and url.password is None:
        raise UsageError("--proxy", f"has a user ({url.username}) without a password", remedy)
    return proxy


def without_password(proxy: str) -> str:
    """The URL of a proxy, as it may be shown."""
    return re.sub(r"//[^@/]*@", "//***@", proxy)
