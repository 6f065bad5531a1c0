"""A failure detector by heartbeats, which are leases as well.

Theory of operation
-------------------
Every ``beat`` seconds a server sends a heartbeat to each of the others, with the time on its own clock, and echoes the
time in the last heartbeat that it received. So each server knows, by its own clock, when each of the others last
responded. A server that has not responded for ``suspect_after`` seconds is *suspected*: it may have crashed, be cut
off, or be stopped. The suspicion may be wrong, and ends when the server responds. A server that has responded before
and whose address now *refuses* connections has ended. Nobody waits for it either; votes and leases ignore refusals.

Heartbeats grant *leases*. A server that has promised to vote for another epoch stops granting them. A server that holds
leases of a majority, none older than ``suspect_after``, knows that the token of a later epoch has not been used: a vote
needs a majority, one member of which granted a lease before it voted, and the maker of a new token waits for
``suspect_after`` seconds before it uses it (a little more, because clocks drift).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from spyker.node.control_messages import Heartbeat
from spyker.node.views import View

DRIFT = 1.1  # bound on the ratio of the speeds of two clocks


class FailureDetector:
    """When the other servers responded, and the leases that they granted. It is not part of checkpoints."""

    def __init__(self, id: int, now: Callable[[], float], suspect_after: float) -> None:
        self.id, self._now, self.suspect_after = id, now, suspect_after
        self._began = now()
        self._listened: dict[int, float] = {}  # per server, when it last responded
        self._granted: dict[int, tuple[int, float]] = {}  # per server, epoch and time of its last lease
        self.away: dict[int, float] = {}  # per server, the round-trip time of the last call
        self._theirs: dict[int, float] = {}  # per server, the time in its last heartbeat
        self._cannot_save: set[int] = set()  # servers whose last heartbeat said so
        self._closed: dict[int, float] = {}  # servers at whose addresses nobody listened any more, and when
        self._seen: tuple[int, float] = (0, self._began)  # epoch, and when its token was last seen
        self._waits = (0, self._began)  # epoch, and from when on its token may be used

    def connected(self, server: int, at: float, epoch: int, *, grants: bool) -> None:
        """Note that a server has accepted a call that began at this time."""
        self.away[server] = self._now() - at
        self._listen(server, at)
        if grants:
            self._grant(server, epoch, at)

    def port_closed(self, server: int, at: float) -> None:
        """Note that a connection to a server was refused at this time. It has ended if it had responded before."""
        if server in self._listened and self._listened[server] < at:
            self._closed[server] = at

    def forget(self, server: int) -> None:
        """Drop what is known of a server that was removed or replaced."""
        for known in (self._listened, self._granted, self._theirs, self.away, self._closed):
            known.pop(server, None)
        self._cannot_save.discard(server)
        self._listened[server] = self._now()  # it is not suspected at once

    def renew(self, epoch: int) -> None:
        """Start an epoch: its token may be used once all leases of earlier epochs have expired."""
        self._seen = epoch, self._now()
        self._waits = epoch, self._now() + DRIFT * self.suspect_after

    def beat(self, server: int, epoch: int, *, grants: bool, idle: float | None) -> Heartbeat:
        """Return the heartbeat for a server."""
        return Heartbeat(epoch, self._now(), self._theirs.get(server), grants, idle)

    def receive_heartbeat(self, server: int, beat: Heartbeat, epoch: int) -> None:
        """Note a server's heartbeat."""
        self._theirs[server] = beat.sent  # also if it is lower: the clock of a machine that restarts begins anew
        if beat.saves:
            self._cannot_save.discard(server)
        else:
            self._cannot_save.add(server)
        if beat.echo is not None and beat.echo <= self._now():
            self._listen(server, beat.echo)
            if beat.grants:
                self._grant(server, beat.epoch, beat.echo)
        suspected = self.silent_for(server) > self.suspect_after
        if beat.idle is not None and beat.epoch == epoch and not suspected:  # its word alone keeps no token alive
            self.saw_token(epoch, beat.idle)

    def saw_token(self, epoch: int, ago: float = 0.0) -> None:
        """Note that some server held the token of an epoch ``ago`` seconds ago."""
        if epoch >= self._seen[0]:
            before = self._seen[1] if epoch == self._seen[0] else 0.0
            self._seen = epoch, max(before, self._now() - ago)

    def token_missed_for(self, epoch: int) -> float:
        """Return the seconds since a server was known to hold the token of an epoch."""
        return self._now() - self._seen[1] if epoch == self._seen[0] else 0.0

    def silent_for(self, server: int, now: float | None = None) -> float:
        """Return the seconds since a server last responded."""
        return (self._now() if now is None else now) - self.listened(server)

    def listened(self, server: int) -> float:
        """Return when a server last responded."""
        return self._listened.get(server, self._began)

    def suspects(self, members: Iterable[int]) -> frozenset[int]:
        """Return the members that have not responded for too long."""
        return frozenset(j for j in members if j != self.id and self.silent_for(j) > self.suspect_after)

    def ended(self, members: Iterable[int]) -> frozenset[int]:
        """Return the members that have ended: their addresses refuse connections."""
        return frozenset(self._closed.keys() & set(members))

    def cannot_save(self, members: Iterable[int]) -> frozenset[int]:
        """Return the members that say that they cannot save."""
        return frozenset(self._cannot_save.intersection(members))

    def leads(self, view: View, now: float | None = None, *, grants: bool) -> bool:
        """Return whether this server holds leases of a majority for this epoch, its own included."""
        now = self._now() if now is None else now
        if self._waits[0] == view.epoch and now < self._waits[1]:
            return False
        with_us = [
            j for j, (epoch, at) in self._granted.items() if epoch == view.epoch and now - at <= self.suspect_after
        ]
        return grants and view.majority([self.id, *with_us])

    def _listen(self, server: int, at: float) -> None:
        self._listened[server] = max(at, self._listened.get(server, at))
        if at > self._closed.get(server, at):
            del self._closed[server]  # it is back

    def _grant(self, server: int, epoch: int, at: float) -> None:
        known = self._granted.get(server, (0, 0.0))
        self._granted[server] = max(known, (epoch, at))
