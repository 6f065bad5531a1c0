"""Clients whose identity is in use at two servers at the same time, and clients that have moved to another server.

Theory of operation
-------------------
A server cannot see that one of its clients is connected elsewhere, too. So each heartbeat tells, for a few clients in
turn, how long ago each connected and how long ago it was last *seen*: when it was given a task that it has answered
since, over the same connection. From the first to the second time the client was connected to this server.

A client that moves closes one connection before it opens the next, so the times of two connections of one process never
overlap, even if a server takes a broken connection for an open one. Another server therefore compares the times with
those of its own connection: if they overlap, two processes use one identity. Nothing is stored for that.

A client whose connection was lost, and which another server has seen since then, has moved. It is not waited for any
longer; it may return.

The clocks of two servers are not synchronised. A heartbeat was sent after the heartbeat that it echoes, and before it
arrives; with that and the bound on the drift of clocks, the receiver only counts times that are certain.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from spyker.node.control_messages import MOST_SIGHTINGS, ClientSighting, Heartbeat
from spyker.node.failure_detector import DRIFT


@dataclass(slots=True)
class Presence:
    """The present connection of a client."""

    since: float
    seen: float | None = None
    """When it was given the last task that it has answered over this connection."""
    number: int | None = None
    """Number of a task that it was given over this connection, and that will show that it is still there."""
    given: float = 0.0
    """When it was given that task."""


class ClientPresence:
    """The connections of one server's clients."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._clients: dict[int, Presence] = {}  # those reported longest ago come first
        self._lost: dict[int, float] = {}  # clients that may return, and when their connections ended

    def connected(self, client: int) -> None:
        """Note that a client has connected."""
        self._clients[client] = Presence(self._now())
        self._lost.pop(client, None)

    def lost(self, client: int) -> None:
        """Note that a client may return: its connection has ended without a goodbye."""
        self._lost[client] = self._now()

    def departed(self, client: int) -> None:
        """Note that nobody waits for a client any more."""
        self._lost.pop(client, None)

    def disconnected(self, client: int) -> None:
        """Note that a client's connection has ended."""
        self._clients.pop(client, None)

    def assigned(self, client: int, number: int) -> None:
        """Note that a client is sent a task over its connection."""
        presence = self._clients.get(client)
        if presence is not None and presence.number is None:
            presence.number, presence.given = number, self._now()

    def answered(self, client: int, number: int) -> None:
        """Note that a client has sent the update for a task."""
        presence = self._clients.get(client)
        if presence is not None and presence.number is not None and number >= presence.number:
            presence.seen, presence.number = presence.given, None

    def sightings(self) -> tuple[ClientSighting, ...]:
        """Return what the next heartbeat tells of some clients; all have their turn."""
        now, told = self._now(), []
        for client in list(self._clients)[:MOST_SIGHTINGS]:
            presence = self._clients[client] = self._clients.pop(client)
            if presence.seen is not None:
                told.append(ClientSighting(client, now - presence.since, now - presence.seen))
        return tuple(told)

    def elsewhere(self, beat: Heartbeat) -> list[int]:
        """Return the clients of this server that were connected to the sender of a heartbeat at the same time."""
        found: list[int] = []
        if beat.echo is None:
            return found
        for told in beat.clients:
            presence = self._clients.get(told.client)
            if presence is not None and presence.seen is not None:
                began = max(presence.since, self._now() - told.connected / DRIFT)
                ended = min(presence.seen, beat.echo - told.seen * DRIFT)
                if began < ended:
                    found.append(told.client)
        return found

    def moved(self, beat: Heartbeat) -> list[int]:
        """Return the clients whose connections were lost here, and which the sender of a heartbeat has seen since."""
        if beat.echo is None:
            return []
        found = [t.client for t in beat.clients if beat.echo - t.seen * DRIFT > self._lost.get(t.client, math.inf)]
        for client in found:
            del self._lost[client]
        return found
