"""gRPC channels and ports: keepalive, limits, TLS and plaintext."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from spyker.errors import UsageError
from spyker.net.frames import FRAME_LIMIT
from spyker.untrusted_files import LARGEST_TABLE, read_bytes

CLIENTS_CONNECT = "/spyker.Clients/Connect"
PEERS_CONNECT = "/spyker.Peers/Connect"
PEERS_CONTROL = "/spyker.Peers/Control"
STREAMS = 1  # per connection: Spyker's clients and servers need no more
HANDSHAKE_SECONDS = 10.0  # TCP, TLS and HTTP/2
IDLE_SECONDS = 60.0  # until a connection without a stream is closed


def options(keepalive: float, patience: float | None = None) -> list[tuple[str, Any]]:
    """Return the options of both ends of every connection.

    Without keepalive, a lost connection would go unnoticed for minutes. With gRPC's defaults, a server would close
    connections because of too many pings. A ping waits behind the data in the sender's socket buffer; ``patience`` is
    the number of seconds until its answer is missed, by default half of ``keepalive``.
    """
    timeout = int(1000 * (keepalive / 2 if patience is None else patience))
    return [
        ("grpc.keepalive_time_ms", int(1000 * keepalive)),
        ("grpc.keepalive_timeout_ms", timeout),
        ("grpc.http2.ping_timeout_ms", timeout),  # the effective timeout; default: a minute
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 100),
        ("grpc.http2.max_ping_strikes", 0),
        # Frames that are slightly too long are rejected and counted by Spyker, longer ones by gRPC.
        ("grpc.max_receive_message_length", FRAME_LIMIT + (1 << 16)),
        ("grpc.so_reuseport", 0),
        ("grpc.use_local_subchannel_pool", 1),  # one connection per channel
        # The flow-control window: the bandwidth-delay product of 100 Mbit/s between continents. gRPC starts with 64 kB.
        ("grpc.http2.lookahead_bytes", 4 << 20),
        ("grpc.http2.max_frame_size", 1 << 18),  # default: 16 kB, which is slow for models
        # Despite its name, the timeout of a connection attempt. TCP and TLS need up to two seconds between continents.
        ("grpc.min_reconnect_backoff_ms", 5000),
        ("grpc.initial_reconnect_backoff_ms", 200),
        ("grpc.max_reconnect_backoff_ms", 2000),
    ]


def guarded(
    keepalive: float, connections: int, window: int | None = None, patience: float | None = None
) -> list[tuple[str, Any]]:
    """Return the options of a port that is open to strangers: limits on connections, streams, time and memory.

    Args:
        keepalive: seconds between pings.
        connections: maximum number of connections.
        window: fixed flow-control window of a stream in bytes; default: gRPC enlarges it for fast senders.
        patience: seconds until the answer to a ping is missed; default: half of ``keepalive``.

    """
    found = dict(options(keepalive, patience))
    if window is not None:
        found |= {"grpc.http2.lookahead_bytes": window, "grpc.http2.bdp_probe": 0}
    return [
        *found.items(),
        ("grpc.max_allowed_incoming_connections", connections),
        ("grpc.max_concurrent_streams", STREAMS),
        ("grpc.server_handshake_timeout_ms", int(1000 * HANDSHAKE_SECONDS)),
        ("grpc.max_connection_idle_ms", int(1000 * IDLE_SECONDS)),
    ]


def channel(
    address: str,
    keepalive: float,
    credentials: grpc.ChannelCredentials | None,
    name: str | None = None,
    proxy: str | None = None,
    patience: float | None = None,
) -> grpc.aio.Channel:
    """Return a connection to ``host:port``, in plaintext if there are no credentials.

    The server's certificate must contain ``name``, by default the host. ``proxy`` is the URL of an HTTP proxy, by
    default that of the environment. ``patience`` is that of :func:`options`.
    """
    chosen = options(keepalive, patience)
    through = [] if proxy is None else [("grpc.http_proxy", proxy)]
    if credentials is None:
        return grpc.aio.insecure_channel(address, [*chosen, *through])
    named = [] if name is None else [("grpc.ssl_target_name_override", name)]
    return grpc.aio.secure_channel(address, credentials, [*chosen, *named, *through])


def open_stream(channel: grpc.aio.Channel, method: str, metadata: Sequence[tuple[str, str]] = ()) -> Any:
    """Open a stream of raw frames."""
    return channel.stream_stream(method)(metadata=tuple(metadata), wait_for_ready=False)


def handler(method: str, behaviour: Any) -> grpc.GenericRpcHandler:
    """Return a gRPC handler that passes the streams of a method, as raw frames, to a coroutine."""
    service, name = method.strip("/").split("/")
    return grpc.method_handlers_generic_handler(service, {name: grpc.stream_stream_rpc_method_handler(behaviour)})


def listen(server: grpc.aio.Server, address: str, credentials: grpc.ServerCredentials | None, key: str) -> int:
    """Listen on ``host:port``, the value of the configuration's ``key``, and return the port."""
    try:
        if credentials is None:
            return server.add_insecure_port(address)
        return server.add_secure_port(address, credentials)
    except RuntimeError:  # without the cause, which a second attempt finds
        if not address.startswith("unix:"):
            bind(address, key).close()
        raise UsageError(key, f"cannot listen on {address}", "Choose a free address of this machine") from None


def bind(address: str, key: str) -> socket.socket:
    """Return a socket that listens on ``host:port``; ``key`` is the option's name in error messages.

    Like gRPC's, a socket on ``[::]`` accepts IPv4 as well.
    """
    host, _, port = address.rpartition(":")
    try:
        family, _, _, _, place = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)[0]
        dual = family == socket.AF_INET6 and place[0] == "::" and socket.has_dualstack_ipv6()
        return socket.create_server(place[:2], family=family, backlog=1024, dualstack_ipv6=dual)
    except OSError as error:
        raise listen_error(address, key, error) from None


def listen_error(address: str, key: str, error: OSError) -> UsageError:
    """Return the error for an address at which this process cannot listen."""
    reason, remedy = error.strerror, "Choose a free address of this machine"
    if error.errno == errno.EADDRINUSE:  # to whose text Python adds the address
        reason, remedy = os.strerror(error.errno), "Stop the server that listens there, or choose another port"
    return UsageError(key, f"cannot listen on {address} ({reason})", remedy)


def read_file(path: Path, key: str) -> bytes:
    """Read a certificate or a private key; ``key`` is the option's name in error messages."""
    try:
        return read_bytes(path, LARGEST_TABLE)
    except OSError as error:
        raise UsageError(
            key, f"{path} cannot be read ({error.strerror})", "spyker federation create writes such files"
        ) from None


def is_loopback(address: str) -> bool:
    """Return whether ``host:port`` is on the loopback interface."""
    host = address.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def refuse_remote(addresses: Sequence[str]) -> None:
    """Raise a ``UsageError`` unless all addresses are local, because plaintext must not leave this machine."""
    for address in addresses:
        if not is_loopback(address):
            raise UsageError(
                "--insecure",
                f"is not allowed with {address}: plaintext is only for loopback addresses",
                "Use certificates: spyker federation create",
            )
