"""Alerts for identities that are in use in two places."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from spyker.protocol.facts import ClientAtTwoServers, ServerDuplicated

COPIED_STATE, ANOTHER_KEY = "copied state", "another key"
PAUSE = 60.0  # seconds between two facts about one identity; and between claims that belong together


@dataclass(slots=True)
class IdentityAlert:
    """How often an identity was found in use in two places."""

    times: int = 0
    recorded: float | None = None
    """When the last fact about it was recorded."""

    def due(self, now: float) -> bool:
        """Count it; return whether a fact is to be recorded."""
        self.times += 1
        if self.recorded is not None and now - self.recorded < PAUSE:
            return False
        self.recorded = now
        return True


class IdentityAlerts:
    """What one process has found: per server and reason, and per client and other server."""

    def __init__(self, id: int, now: Callable[[], float]) -> None:
        self.servers: dict[tuple[int, str], IdentityAlert] = {}
        self.clients: dict[tuple[int, int], IdentityAlert] = {}
        self._id, self._now = id, now
        self._claims: dict[int, tuple[str, float, float]] = {}  # the known lineage; first and last claim of another

    def duplicated(self, server: int, reason: str) -> list[ServerDuplicated]:
        """Return the fact to be recorded, if any: two processes act for a server."""
        alert = self.servers.setdefault((server, reason), IdentityAlert())
        return [ServerDuplicated(self._id, server, reason)] if alert.due(self._now()) else []

    def claimed(self, server: int, known: str, listened: float) -> list[ServerDuplicated]:
        """Note that a process with another key than the ``known`` one claims to be a server.

        The server may have lost its state and started afresh. It is in use in two places if it has responded
        (``listened`` says when) after the first claim.
        """
        now = self._now()
        lineage, first, last = self._claims.get(server, ("", now, now))
        if lineage != known or now - last > PAUSE:
            first = now
        self._claims[server] = known, first, now
        return self.duplicated(server, ANOTHER_KEY) if listened > first else []

    def elsewhere(self, client: int, server: int) -> list[ClientAtTwoServers]:
        """Return the fact to be recorded, if any: a client is connected here and to another server."""
        alert = self.clients.setdefault((client, server), IdentityAlert())
        return [ClientAtTwoServers(self._id, client, server)] if alert.due(self._now()) else []
