"""The service that the first bytes of a connection ask for, where several listeners share a port."""

from __future__ import annotations

from collections.abc import Iterator

from spyker.net.certificates import SERVER

CLIENTS, PEERS, WEBSOCKET = "clients", "peers", "websocket"
HTTP2 = b"PRI * HTTP/2.0\r\n"
MOST = 1 << 16  # bytes to inspect
HANDSHAKE, CLIENT_HELLO, SERVER_NAME, ALPN = 22, 1, 0, 16  # numbers of TLS


class Unreadable(Exception):  # noqa: N818 - not an error
    """Neither TLS nor HTTP."""


def service_of(data: bytes) -> str | None:
    """Return the service of a connection that starts with these bytes, or ``None`` if more bytes are needed.

    TLS with the name of a server (``server-I.spyker``) comes from another server. HTTP/2, offered in TLS or in
    plaintext, is gRPC of clients. Everything else is HTTP/1.1, for WebSockets.

    Raises:
        Unreadable: if it is neither TLS nor HTTP.

    """
    if data[:1] == bytes([HANDSHAKE]):
        hello = client_hello(data)
        if hello is None:
            return None
        name, protocols = hello
        if SERVER.fullmatch(name):
            return PEERS
        return CLIENTS if b"h2" in protocols else WEBSOCKET
    if data.startswith(HTTP2):
        return CLIENTS
    if HTTP2.startswith(data[: len(HTTP2)]):
        return None
    if data.startswith(b"GET "):
        return WEBSOCKET
    if b"GET ".startswith(data):
        return None
    raise Unreadable


def client_hello(data: bytes) -> tuple[str, list[bytes]] | None:
    """Return the server name and the ALPN protocols of a ClientHello, or ``None`` if more bytes are needed."""
    message, start = b"", 0
    while len(message) < 4 or len(message) < 4 + int.from_bytes(message[1:4]):
        if len(data) < start + 5:
            return None
        length = int.from_bytes(data[start + 3 : start + 5])
        if data[start] != HANDSHAKE or not length:
            raise Unreadable
        if len(data) < start + 5 + length:
            return None
        message += data[start + 5 : start + 5 + length]
        start += 5 + length
    if message[0] != CLIENT_HELLO:
        raise Unreadable
    try:
        return read_extensions(message[4:])
    except (IndexError, ValueError):
        raise Unreadable from None


def read_extensions(body: bytes) -> tuple[str, list[bytes]]:
    """Return the server name and the ALPN protocols in the body of a ClientHello."""
    name, protocols = "", list[bytes]()
    start = 2 + 32  # version and random
    for width in (1, 2, 1):  # session, cipher suites, compression
        start += width + int.from_bytes(body[start : start + width])
    for kind, value in extensions(body[start:]):
        if kind == SERVER_NAME and value[2:3] == b"\0":
            name = value[5 : 5 + int.from_bytes(value[3:5])].decode("ascii")
        elif kind == ALPN:
            rest = value[2:]
            while rest:
                protocols.append(rest[1 : 1 + rest[0]])
                rest = rest[1 + rest[0] :]
    return name, protocols


def extensions(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Iterate over the extensions of a ClientHello."""
    start, end = 2, 2 + int.from_bytes(data[:2])
    while start + 4 <= min(end, len(data)):
        length = int.from_bytes(data[start + 2 : start + 4])
        yield int.from_bytes(data[start : start + 2]), data[start + 4 : start + 4 + length]
        start += 4 + length
