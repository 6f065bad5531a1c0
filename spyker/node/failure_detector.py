"""Who is within reach, and for how long we may act as one of a majority.

Theory of operation
-------------------
Every ``beat`` seconds a server sends a *beat* to each of the others, with the time by its own clock, and repeats in it
the time of the last one that it got. So everybody knows, by its own clock, a moment at which each of the others was
still listening. Who has listened to nothing for ``suspect_after`` seconds is suspected to be out of reach: dead, cut
off, or stopped. It may be wrong, and will be trusted again when it answers.

The same beats are *leases*. Whoever promises to vote for another epoch says in its beats, from then on, that it grants
nothing any more. A server that has, from a majority, grants no older than ``suspect_after`` can be sure that no later
epoch's token was used yet: a vote needs a majority, one of which must have granted before it voted, and who makes a new
token waits for ``suspect_after`` seconds before it uses it (a little more, since clocks may run at slightly different
speeds).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from spyker.node.control_messages import Heartbeat
from spyker.node.views import View

DRIFT = 1.1  # how much longer a second of one clock may be than that of another


class FailureDetector:
    """What one server knows of the others' presence. Nothing of it outlives the process."""

    def __init__(self, id: int, now: Callable[[], float], suspect_after: float) -> None:
        self.id, self._now, self.suspect_after = id, now, suspect_after
        self._began = now()
        self._listened: dict[int, float] = {}  # when each of the others was still listening
        self._granted: dict[int, tuple[int, float]] = {}  # and granted a lease, in which epoch
        self.away: dict[int, float] = {}  # seconds that each took to answer a call
        self._theirs: dict[int, float] = {}  # the time in the last beat of each, by its own clock
        self._seen: tuple[int, float] = (0, self._began)  # when the token of an epoch was last seen
        self._waits = (0, self._began)  # from when on the token of an epoch may be used

    def connected(self, server: int, at: float, epoch: int, *, grants: bool) -> None:
        """A connection was made that was asked for at this time: then the other end was there."""
        self.away[server] = self._now() - at
        self._listen(server, at)
        if grants:
            self._grant(server, epoch, at)

    def forget(self, server: int) -> None:
        """It is another one now, or gone."""
        for known in (self._listened, self._granted, self._theirs, self.away):
            known.pop(server, None)
        self._listened[server] = self._now()  # and gets its time

    def renew(self, epoch: int) -> None:
        """Another epoch has begun: its token may be used when nobody can have a lease for an earlier one."""
        self._seen = epoch, self._now()
        self._waits = epoch, self._now() + DRIFT * self.suspect_after

    def beat(self, server: int, epoch: int, *, grants: bool, idle: float | None) -> Heartbeat:
        """What to tell another server."""
        return Heartbeat(epoch, self._now(), self._theirs.get(server), grants, idle)

    def receive_heartbeat(self, server: int, beat: Heartbeat, epoch: int) -> None:
        """What another server told."""
        self._theirs[server] = max(beat.sent, self._theirs.get(server, 0.0))
        if beat.echo is not None and beat.echo <= self._now():
            self._listen(server, beat.echo)
            if beat.grants:
                self._grant(server, beat.epoch, beat.echo)
        if beat.idle is not None and beat.epoch == epoch:
            self.saw_token(epoch, beat.idle)

    def saw_token(self, epoch: int, ago: float = 0.0) -> None:
        """The token of an epoch was somewhere, so long ago."""
        if epoch >= self._seen[0]:
            before = self._seen[1] if epoch == self._seen[0] else 0.0
            self._seen = epoch, max(before, self._now() - ago)

    def token_missed_for(self, epoch: int) -> float:
        """Seconds since anybody was known to have the token of an epoch."""
        return self._now() - self._seen[1] if epoch == self._seen[0] else 0.0

    def silent_for(self, server: int, now: float | None = None) -> float:
        """Seconds since a server was still listening."""
        return (self._now() if now is None else now) - self.listened(server)

    def listened(self, server: int) -> float:
        """When a server was still listening, by this one's clock."""
        return self._listened.get(server, self._began)

    def suspects(self, members: Iterable[int]) -> frozenset[int]:
        """Those that seem to be out of reach."""
        return frozenset(j for j in members if j != self.id and self.silent_for(j) > self.suspect_after)

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

    def _grant(self, server: int, epoch: int, at: float) -> None:
        known = self._granted.get(server, (0, 0.0))
        self._granted[server] = max(known, (epoch, at))
