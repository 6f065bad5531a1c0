"""How gRPC is set up: keepalive, limits, TLS and plaintext."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from spyker.errors import UsageError
from spyker.net.frames import FRAME_LIMIT

CLIENTS_CONNECT = "/spyker.Clients/Connect"
PEERS_CONNECT = "/spyker.Peers/Connect"
STREAMS = 1  # of one connection at a time: our own clients and servers need no more
GREETING_SECONDS = 10.0  # for TCP, TLS and HTTP/2 to say how they do
IDLE_SECONDS = 60.0  # of a connection that nothing is asked of


def options(keepalive: float) -> list[tuple[str, Any]]:
    """For both ends of every connection. Without keepalive a peer that vanished goes unnoticed for minutes; and a
    server at its defaults ends connections whose other side sends more pings than it cares for.
    """
    return [
        ("grpc.keepalive_time_ms", int(1000 * keepalive)),
        ("grpc.keepalive_timeout_ms", int(500 * keepalive)),
        ("grpc.http2.ping_timeout_ms", int(500 * keepalive)),  # this is the one that counts, and it is a minute else
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 100),
        ("grpc.http2.max_ping_strikes", 0),
        # What is a little too long we refuse ourselves, and count; the rest is not even taken in.
        ("grpc.max_receive_message_length", FRAME_LIMIT + (1 << 16)),
        ("grpc.so_reuseport", 0),
        ("grpc.use_local_subchannel_pool", 1),  # whoever opens two channels wants two connections
        # What may be under way at once in one stream; 64 kB else, until gRPC has found out that more would do. Between
        # continents so much is under way at 100 Mbit/s.
        ("grpc.http2.lookahead_bytes", 4 << 20),
        ("grpc.http2.max_frame_size", 1 << 18),  # 16 kB else, which makes much ado about a model
        # In spite of its name this is how long an attempt to connect may take. Between continents TCP and TLS together
        # need up to two seconds.
        ("grpc.min_reconnect_backoff_ms", 5000),
        ("grpc.initial_reconnect_backoff_ms", 200),
        ("grpc.max_reconnect_backoff_ms", 2000),
    ]


def guarded(keepalive: float, connections: int, window: int | None = None) -> list[tuple[str, Any]]:
    """For a port that strangers can reach: whatever they do takes a place, and little memory, for a short while.

    ``window`` is for a port where they get as far as opening streams: so many bytes of each are taken in before anybody
    reads it. gRPC would let whoever sends fast have more and more. A chunk that is being read comes in as a whole.
    """
    found = dict(options(keepalive))
    if window is not None:
        found |= {"grpc.http2.lookahead_bytes": window, "grpc.http2.bdp_probe": 0}
    return [
        *found.items(),
        ("grpc.max_allowed_incoming_connections", connections),
        ("grpc.max_concurrent_streams", STREAMS),
        ("grpc.server_handshake_timeout_ms", int(1000 * GREETING_SECONDS)),
        ("grpc.max_connection_idle_ms", int(1000 * IDLE_SECONDS)),
    ]


def channel(
    address: str,
    keepalive: float,
    credentials: grpc.ChannelCredentials | None,
    name: str | None = None,
    proxy: str | None = None,
) -> grpc.aio.Channel:
    """A connection to ``host:port``; without credentials, in plaintext. With a ``name``, it is that and not the host
    that must stand in the certificate of whoever answers. Without a ``proxy``, the environment may name one.
    """
    through = [] if proxy is None else [("grpc.http_proxy", proxy)]
    if credentials is None:
        return grpc.aio.insecure_channel(address, [*options(keepalive), *through])
    named = [] if name is None else [("grpc.ssl_target_name_override", name)]
    return grpc.aio.secure_channel(address, credentials, [*options(keepalive), *named, *through])


def open_stream(channel: grpc.aio.Channel, method: str, metadata: Sequence[tuple[str, str]] = ()) -> Any:
    """Begin a stream of raw frames."""
    return channel.stream_stream(method)(metadata=tuple(metadata), wait_for_ready=False)


def handler(method: str, behaviour: Any) -> grpc.GenericRpcHandler:
    """Let a coroutine serve the streams of one method, as raw frames."""
    service, name = method.strip("/").split("/")
    return grpc.method_handlers_generic_handler(service, {name: grpc.stream_stream_rpc_method_handler(behaviour)})


def listen(server: grpc.aio.Server, address: str, credentials: grpc.ServerCredentials | None, key: str) -> int:
    """Listen on ``host:port``, as the configuration says under ``key``, and return the port."""
    try:
        if credentials is None:
            return server.add_insecure_port(address)
        return server.add_secure_port(address, credentials)
    except RuntimeError:
        raise UsageError(key, f"cannot listen on {address}", "Choose an address of this machine that is free") from None


def bind(address: str, key: str) -> socket.socket:
    """A socket that listens on ``host:port``, as the configuration says under ``key``; as gRPC's, [::] is IPv4, too."""
    host, _, port = address.rpartition(":")
    try:
        family, _, _, _, place = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)[0]
        dual = family == socket.AF_INET6 and place[0] == "::" and socket.has_dualstack_ipv6()
        return socket.create_server(place[:2], family=family, backlog=1024, dualstack_ipv6=dual)
    except OSError:
        raise UsageError(key, f"cannot listen on {address}", "Choose an address of this machine that is free") from None


def read_file(path: Path, what: str) -> bytes:
    """A certificate or a key."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(what, f"{path} cannot be read ({error.strerror})", "spyker certs makes such files") from None


def is_loopback(address: str) -> bool:
    """Whether ``host:port`` is certain never to leave this machine."""
    host = address.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def refuse_remote(addresses: Sequence[str]) -> None:
    """Plaintext is for one's own machine."""
    for address in addresses:
        if not is_loopback(address):
            raise UsageError(
                "--insecure",
                f"would speak plaintext with {address}",
                "Use it with loopback addresses only; elsewhere, make certificates: spyker certs",
            )
