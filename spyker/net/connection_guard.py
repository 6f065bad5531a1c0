"""Enforcement of the limits on unauthenticated connections at ports whose sockets belong to gRPC.

gRPC gives no access to its connections, and none of its options bounds what it buffers of endless HTTP/2 headers. The
guard therefore looks for connections among the descriptors of this process, and shuts down those that exceed the
limits; gRPC then sees the end of the connection. It costs no throughput, because it is not on the path of the bytes.
Where there is no ``/proc``, there is no guard.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import struct
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from threading import Event, Thread
from typing import TypeAlias

from spyker.net.connection_limits import FLOOD, AuthenticatedPeers, Connection, excess
from spyker.net.network_ban import BannedNetworks, attach
from spyker.net.peer_address import network_of, socket_name

DESCRIPTORS = "/proc/self/fd"
PASS_SECONDS = 0.02  # between two passes, if they are short
SHARE = 50  # of the time; passes take one part
BYTES_RECEIVED = 128  # offset of tcpi_bytes_received in Linux's struct tcp_info
TCP_INFO_BYTES = 136

Report: TypeAlias = Callable[[str, str], None]


class Watched:
    """A connection that the guard has found."""

    __slots__ = ("base", "connection", "descriptor", "inode", "port")

    def __init__(self, descriptor: int, inode: int, port: int, connection: Connection) -> None:
        self.descriptor, self.inode, self.port, self.connection = descriptor, inode, port, connection
        self.base: int | None = 0  # bytes received when its last authenticated stream ended; None while one is open


class ConnectionGuard:
    """Closes connections that exceed the limits, in a thread."""

    def __init__(self, ports: Mapping[int, int], authenticated: AuthenticatedPeers, report: Report) -> None:
        """Guard listening ports.

        Args:
            ports: the ports, and the maximum number of connections at each.
            authenticated: the connections that the limits do not concern.
            report: called, in the guard's thread, with the reason and the peer's name of a connection that is closed.

        """
        self._ports, self._authenticated, self._report = ports, authenticated, report
        self._sockets: dict[int, tuple[int, Watched | None]] = {}  # by descriptor: the inode, and a connection
        self._listening: list[Watched] = []
        self._bans, self._banned = BannedNetworks(authenticated.networks), frozenset[str]()
        self._ended = Event()
        self._thread = Thread(target=self._run, name="connection-guard", daemon=True)

    def start(self) -> None:
        """Start the thread, if this system has a list of descriptors."""
        if Path(DESCRIPTORS).is_dir():
            self._thread.start()

    def stop(self) -> None:
        """Stop the thread."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        pause = PASS_SECONDS
        while not self._ended.wait(pause):
            began = time.thread_time()
            closed = self.inspect(time.monotonic())
            pause = PASS_SECONDS if closed else max(PASS_SECONDS, SHARE * (time.thread_time() - began))

    def inspect(self, now: float) -> int:
        """Close the connections that exceed the limits, and return their number."""
        closed = 0
        strangers, members = defaultdict[int, list[Watched]](list), defaultdict[int, int](int)
        for each in self._connections(now):
            if each.connection.peer in self._authenticated:
                members[each.port] += 1
                each.base = None
                continue
            with self._open(each) as opened:
                if opened is not None:
                    self._measure(each, opened, now)
                    strangers[each.port].append(each)
        for port, found in strangers.items():
            watched = {id(each.connection): each for each in found}
            connections = [each.connection for each in found]
            for connection, reason in excess(connections, members[port], self._ports[port], now):
                with self._open(watched[id(connection)]) as opened, contextlib.suppress(OSError):
                    if opened is not None and connection.peer not in self._authenticated:
                        opened.shutdown(socket.SHUT_RDWR)
                        self._report(reason, connection.peer)
                        closed += 1
                        if reason == FLOOD:
                            self._bans.ban(network_of(connection.peer), now)
        self._enforce_bans(now)
        return closed

    def _enforce_bans(self, now: float) -> None:
        """Let the kernel drop packets of banned networks."""
        banned = self._bans.current(now)
        if banned != self._banned:
            self._banned = banned
            for each in self._listening:
                with self._open(each) as opened:
                    if opened is not None:
                        attach(opened, banned)

    def _connections(self, now: float) -> Iterator[Watched]:
        """Iterate over the connections at the ports."""
        before, self._sockets = self._sockets, {}
        for name in os.listdir(DESCRIPTORS):
            descriptor = int(name)
            try:
                status = os.fstat(descriptor)
            except OSError:
                continue  # closed meanwhile
            if not stat.S_ISSOCK(status.st_mode):
                continue
            known = before.get(descriptor)
            if known is None or known[0] != status.st_ino:
                known = status.st_ino, self._examine(descriptor, status.st_ino, now)
            self._sockets[descriptor] = known
            if known[1] is not None:
                yield known[1]

    def _examine(self, descriptor: int, inode: int, now: float) -> Watched | None:
        """Return a socket as a connection, or ``None`` if it is no connection at one of the ports."""
        found = Watched(descriptor, inode, 0, Connection("", now))
        with self._open(found) as opened, contextlib.suppress(OSError):
            if opened is not None and opened.family in (socket.AF_INET, socket.AF_INET6):
                found.port = opened.getsockname()[1]
                if opened.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                    self._listening += [found] if found.port in self._ports else []
                else:
                    found.connection.peer = socket_name(opened.getpeername())
        return found if found.connection.peer and found.port in self._ports else None

    def _measure(self, each: Watched, opened: socket.socket, now: float) -> None:
        try:
            info = opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)
            received = int(struct.unpack_from("Q", info, BYTES_RECEIVED)[0])
        except (OSError, struct.error):
            received = 0  # an older kernel does not count
        if each.base is None:
            each.base, each.connection.since = received, now
        each.connection.received = received - each.base

    @contextlib.contextmanager
    def _open(self, each: Watched) -> Iterator[socket.socket | None]:
        """Yield the socket, or ``None`` if its owner has closed it.

        The duplicate is closed at once, because a connection lasts as long as one of its descriptors.
        """
        try:
            duplicate = os.dup(each.descriptor)
        except OSError:
            yield None
            return
        if os.fstat(duplicate).st_ino != each.inode:
            os.close(duplicate)
            yield None
            return
        with socket.socket(fileno=duplicate) as opened:
            yield opened
