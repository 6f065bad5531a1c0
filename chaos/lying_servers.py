"""Servers that lie about the membership: former members that keep sending messages, and members."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec.structs import replace

from spyker.node.control_messages import (
    Announcement,
    Decided,
    Declined,
    Heartbeat,
    LaterIncarnation,
    PeerHandshake,
    Prepare,
    ProcessIncarnation,
)
from spyker.node.events import ControlReceived, Event, PeerHelloReceived, RejectedByPeer
from spyker.node.membership import OPERATOR
from spyker.node.paxos import WIDTH
from spyker.node.rejection import Rejection
from spyker.node.view_proofs import ViewProof, Vote, vote_statement
from spyker.node.views import Member, MembershipChange, View
from spyker.sim.sim_keys import SimKeys
from spyker.sim.sim_process import SimProcess

if TYPE_CHECKING:
    from chaos.faulty_cluster import FaultyCluster

EVERY = 0.7  # seconds between two rounds of forged messages
FAR = (1 << 20) - 1


class Attacker:
    """Sends forged messages. It knows everything public, and the key of its own lineage."""

    def __init__(self, world: FaultyCluster, server: int, lineage: str, *, member: bool) -> None:
        self.world, self.server, self.member = world, server, member
        self.keys = SimKeys(lineage, server)
        self.talks = True

    def talk(self) -> None:
        """Send forged messages to every other process, periodically."""
        if not self.talks:
            return
        for process in list(self.world.all_processes):
            if process.alive and process.backlog is None and process.node.id != self.server:
                for event in self.lies(process):
                    if process.alive:
                        self._tell(process, event)
                if process.alive:
                    process.go_on()
        self.world.schedule(self.world.clock.now + EVERY, self.talk)

    def _tell(self, process: SimProcess, event: Event) -> None:
        try:
            process.step(event)
        except Rejection as rejection:
            self.world.rejected[rejection.reason] += 1

    def lies(self, process: SimProcess) -> Iterator[Event]:
        """Return the messages for one process, with a view forged as well as the attacker can."""
        view, now, me = process.node.view, process.now(), self.server
        alone = {me: Member(self.keys.lineage)}
        victim = process.node.id
        forged = [
            self._forged(view, view.following(next(iter(view.voters)), MembershipChange(victim, None))),
            self._forged(replace(view, epoch=FAR - 1), replace(view, epoch=FAR, leader=me)),
            self._forged(View(FAR - 1, alone, me), View(FAR, alone, me)),
        ]
        later = Announcement(victim, process.node.membership.lineage, ProcessIncarnation(1 << 40, "x"))
        later = replace(later, signature=self.keys.sign(later.statement(self.keys.federation)))
        if not self.member:  # a member's own process connects for it
            mine = Announcement(me, self.keys.lineage, ProcessIncarnation(1 << 40, "x")).signed(self.keys)
            for proof in forged:
                hello = PeerHandshake(mine, 0, FAR, proofs=(proof,), endorsement=self.keys.endorsement)
                yield PeerHelloReceived(hello, b"", b"", now=now)
            if not self._believed(process):  # a process that does not know of the removal yet must accept it
                yield RejectedByPeer(me, "rolled-back", "forged", self.keys.lineage, now=now)
        for reason in ("membership", "duplicate"):
            evidence = Decided(tuple(forged[:1])) if reason == "membership" else LaterIncarnation(later)
            yield RejectedByPeer(me, reason, "forged", self.keys.lineage, evidence, now=now)
        for proof in forged:
            yield ControlReceived(me, Decided((proof,)), now=now)
        ballot = (1 << 62) // WIDTH * WIDTH + me
        yield ControlReceived(me, LaterIncarnation(later), now=now)
        yield ControlReceived(me, Prepare(view.epoch, ballot, view.following(me), OPERATOR), now=now)
        opened = process.node.membership.paxos.open_ballot
        if opened is not None:
            yield ControlReceived(me, Declined(view.epoch, opened.ballot, (1 << 63) - 1), now=now)
        if not self.member and self._believed(process):  # its key is still listed: it may send heartbeats
            yield ControlReceived(me, Heartbeat(FAR, 0.0, None, True, 0.0, announcements=(later,)), now=now)
            higher = (process.node.membership.paxos.promised // WIDTH + 1) * WIDTH + me  # a ballot that voters allow
            yield ControlReceived(me, Prepare(view.epoch, higher, view.following(me), OPERATOR), now=now)
            yield ControlReceived(me, Heartbeat(view.epoch, 0.0, None, True, 0.0), now=now)

    def _believed(self, process: SimProcess) -> bool:
        """Return whether a process regards the attacker as a member."""
        membership = process.node.membership
        member = membership.view.members.get(self.server)
        known = membership.lineages.get(self.server)
        return member is not None and self.keys.lineage in (member.lineage, None if member.lineage else known)

    def _forged(self, previous: View, view: View) -> ViewProof:
        """Return a view that all voters seem to have signed, with the only key that the attacker has."""
        votes = {}
        for j in previous.voters:
            statement = vote_statement(self.keys.federation, j, previous, WIDTH, view)
            votes[j] = Vote(self.keys.sign(statement), self.keys.lineage, self.keys.endorsement)
        return ViewProof(view, previous, WIDTH, votes)
