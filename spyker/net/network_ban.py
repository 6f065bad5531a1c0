"""A temporary ban of networks, enforced by the kernel with a packet filter at the listening sockets.

A banned network cannot connect; its packets are dropped before there is a connection, at no cost to this process. Linux
lets every process attach a classic BPF program to its own sockets.
"""

from __future__ import annotations

import contextlib
import ctypes
import ipaddress
import socket
import struct
from collections.abc import Container, Iterable

BAN_SECONDS = 60.0
MOST_BANNED = 48  # jumps of the program are limited to 255 instructions

SO_ATTACH_FILTER, SO_DETACH_FILTER = 26, 27
NETWORK_HEADER = 0xFFF00000  # SKF_NET_OFF: offsets from here count from the IP header
LOAD_BYTE, LOAD_WORD, AND, JUMP_IF_EQUAL, RETURN = 0x30, 0x20, 0x54, 0x15, 0x06
IPV4_SOURCE, IPV6_SOURCE = 12, 8  # offsets in the IP header
ACCEPT, DROP = 0xFFFFFFFF, 0


class BannedNetworks:
    """The networks that are banned, and until when."""

    def __init__(self, trusted: Container[str]) -> None:
        """``trusted`` are never banned: a client has authenticated there, which may be a proxy, or shared by many."""
        self._until: dict[str, float] = {}
        self._trusted = trusted

    def ban(self, network: str, now: float) -> None:
        """Ban a network, unless it is trusted or too many are banned."""
        if network not in self._trusted and (network in self._until or len(self._until) < MOST_BANNED):
            self._until[network] = now + BAN_SECONDS

    def current(self, now: float) -> frozenset[str]:
        """Return the networks that are banned now."""
        for network in [network for network, until in self._until.items() if until <= now]:
            del self._until[network]
        return frozenset(self._until)


def attach(listening: socket.socket, networks: Iterable[str]) -> None:
    """Make a listening socket drop packets of these networks, and of no others."""
    program = compile_filter(networks)
    if program is None:
        with contextlib.suppress(OSError):  # there is none
            listening.setsockopt(socket.SOL_SOCKET, SO_DETACH_FILTER, 0)
        return
    code = ctypes.create_string_buffer(program, len(program))
    with contextlib.suppress(OSError):  # without the filter, the limits still hold for every connection
        head = struct.pack("@HP", len(program) // 8, ctypes.addressof(code))
        listening.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, head)


def compile_filter(networks: Iterable[str]) -> bytes | None:
    """Return the program that drops packets of networks, or ``None`` if there are none.

    A network is ``ipv4:ADDRESS``, or an IPv6 network, of which the first 64 bits count.
    """
    v4, v6 = list[int](), list[tuple[int, int]]()
    for each in networks:
        with contextlib.suppress(ValueError):
            if each.startswith("ipv4:"):
                v4.append(int(ipaddress.IPv4Address(each.removeprefix("ipv4:"))))
            else:
                first = int(ipaddress.IPv6Network(each).network_address) >> 64
                v6.append((first >> 32, first & 0xFFFFFFFF))
    if not v4 and not v6:
        return None
    # The last two instructions accept and drop. Jumps count from the next instruction.
    size = 3 + (1 + len(v4) + 1) + 4 * len(v6) + 2
    code = [
        (LOAD_BYTE, 0, 0, NETWORK_HEADER),
        (AND, 0, 0, 0xF0),
        (JUMP_IF_EQUAL, 0, 2 + len(v4), 0x40),  # the version; others than 4 are 6
        (LOAD_WORD, 0, 0, NETWORK_HEADER + IPV4_SOURCE),
    ]
    for address in v4:
        code.append((JUMP_IF_EQUAL, size - 2 - len(code), 0, address))
    code.append((RETURN, 0, 0, ACCEPT))
    for high, low in v6:
        code.append((LOAD_WORD, 0, 0, NETWORK_HEADER + IPV6_SOURCE))
        code.append((JUMP_IF_EQUAL, 0, 2, high))
        code.append((LOAD_WORD, 0, 0, NETWORK_HEADER + IPV6_SOURCE + 4))
        code.append((JUMP_IF_EQUAL, size - 2 - len(code), 0, low))
    code += [(RETURN, 0, 0, ACCEPT), (RETURN, 0, 0, DROP)]
    return b"".join(struct.pack("@HBBI", *each) for each in code)
