"""Addresses of connections in gRPC's notation, by which all parts of a server process name a connection."""

from __future__ import annotations

import ipaddress
from typing import Any

FORWARDED = "spyker-front/"
"""Prefix of the abstract Unix address from which the front connects. The caller's address follows after a slash."""


def peer_name(host: str, port: int) -> str:
    """Return the name of a TCP connection; an IPv4 address within IPv6 is an IPv4 address."""
    host = host.removeprefix("::ffff:") if host.startswith("::ffff:") and "." in host else host.partition("%")[0]
    return f"ipv6:%5B{host}%5D:{port}" if ":" in host else f"ipv4:{host}:{port}"


def forwarded_address(owner: int, peer: str) -> bytes:
    """Return the abstract Unix address from which the front, a process with the ID ``owner``, connects for a caller."""
    return f"\0{FORWARDED}{owner}/{peer}".encode()


def socket_name(address: Any) -> str:
    """Return the name of a connection from its socket address: TCP, or a Unix socket of the front."""
    if isinstance(address, tuple):
        return peer_name(*address[:2])
    text = address.decode("utf-8", "replace") if isinstance(address, bytes) else str(address)
    return original_name(f"unix-abstract:{text.removeprefix(chr(0))}") if text else "unix:"


def original_name(peer: str) -> str:
    """Return the name of a connection as its caller has it, also if the front forwards the connection."""
    prefix = f"unix-abstract:{FORWARDED}"
    return peer.removeprefix(prefix).partition("/")[2] if peer.startswith(prefix) else peer


def host_of(peer: str) -> str:
    """Return the host of a connection, without the port."""
    return original_name(peer).rpartition(":")[0]


def network_of(peer: str) -> str:
    """Return what one party can be assumed to control: an IPv4 address, or the /64 of an IPv6 address."""
    host = host_of(peer)
    if not host.startswith("ipv6:"):
        return host
    inside = host.removeprefix("ipv6:").removeprefix("%5B").removesuffix("%5D")
    try:
        return str(ipaddress.IPv6Network((inside, 64), strict=False))
    except ValueError:
        return host
