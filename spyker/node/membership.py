"""What one server knows of the others: the members, the suspects, and who may use the token.

It combines the decisions of :mod:`~spyker.node.paxos` with the observations of :mod:`~spyker.node.failure_detector`,
and authenticates other servers:

- Each number has one *lineage*, and of it one valid *incarnation*, the latest. Two copies of one state folder are two
  incarnations; the older one is *fenced*: it must stop.
- Nothing follows from what one other server says about the members or about a third server: views carry proofs
  (:mod:`~spyker.node.view_proofs`), and what a server announces of itself carries its signature. A server that is not a
  member changes nothing.
- A server whose state is older than the one that others know of restarts as a new member, under a new lineage, and gets
  a bootstrap state.
- A new server is admitted if its number was announced, once a vote has put its lineage into the view.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from spyker.node.control_messages import (
    Announcement,
    ControlMessage,
    Decided,
    Declined,
    Heartbeat,
    LaterIncarnation,
    PeerHandshake,
    Prepare,
    ProcessIncarnation,
)
from spyker.node.failure_detector import FailureDetector
from spyker.node.keys import Keys
from spyker.node.membership_state import membership_numbers, restore_membership
from spyker.node.paxos import MembershipPaxos, Proposal
from spyker.node.rejection import REMEDY, RETURN, Rejection, RolledBack
from spyker.node.save_monitor import SaveMonitor
from spyker.node.view_proofs import ViewChain, ViewProof
from spyker.node.views import ANYBODY, NOBODY, Member, MembershipChange, View

RENEW, SILENCE, FINISH = "the token is lost", "silence", "to finish a vote"  # why something is to be decided
ARRIVAL, OPERATOR = "it has come", "somebody wants it"


class Membership:
    """The membership as one server knows it. What is to be done is left in its attributes, for the node."""

    def __init__(
        self,
        id: int,
        view: View,
        now: Callable[[], float],
        *,
        keys: Keys,
        incarnation: ProcessIncarnation | None = None,
        former: str = "",
        succession: bytes = b"",
        clients: str = "",
        certificate: str = "",
        sealing: str = "",
        new: bool = False,
        suspect_after: float = 5.0,
        renew_token_after: float = 10.0,
        remove_after: float | None = None,
    ) -> None:
        """Create what a server knows when it starts, from the first view.

        ``former`` is the lineage before it restarted as a new member, ``succession`` that lineage's signature on the
        present one; ``clients`` its address for clients, ``certificate`` the fingerprint of its TLS certificate,
        ``sealing`` its public key for the seeds of masks; ``new``: it has no state and is not a member yet.
        """
        self.id, self.keys, self.lineage, self.new = id, keys, keys.lineage, new
        self.former, self._succession = former, succession
        self.incarnation = incarnation or ProcessIncarnation()
        announcement = Announcement(id, self.lineage, self.incarnation, clients, certificate, sealing)
        self.announcement = announcement.signed(keys)
        self.renew_token_after, self.remove_after = renew_token_after, remove_after
        self.saves = 0  # checkpoints taken
        self.saved = 0  # and of these, on disk
        self.chain = ViewChain(keys)
        self.paxos = MembershipPaxos(id, view, self._agrees, keys, self._known_lineages)
        self.paxos.decided = lambda proof: self._adopt([proof])
        self.failure_detector = FailureDetector(id, now, suspect_after)
        self.save_monitor = SaveMonitor(now, suspect_after)
        self._now = now
        self.lineages: dict[int, str] = {}  # of the other servers that connected
        self.announcements: dict[int, Announcement] = {}  # the latest of each, verified
        self.endorsements: dict[int, bytes] = {}
        self._epochs: dict[int, int] = {}  # of the other servers, as they say
        self.known_checkpoints: dict[int, int] = {}
        self.met_processes: dict[int, ProcessIncarnation] = {}  # incarnations that connected themselves
        self._claims: dict[int, tuple[str, float]] = {}  # lineages that claim to succeed a member, and since when
        self.suspected: frozenset[int] = frozenset()
        self.proposals: list[Proposal] = []
        self.fenced = ""  # why this server must stop
        self.duplicated = False  # it is fenced because a later process of it has begun
        self.outdated = ""  # why it must restart as a new member
        self.outgoing: list[tuple[int, ControlMessage]] = []  # to be sent at once
        self.adopted: list[tuple[View, View]] = []  # views before and after each change
        self._token_at = now() if view.epoch == 0 and id == view.leader else None  # when it was last here
        self._voting_since: float | None = None
        self._tried = now()
        self._last_view = view

    @property
    def view(self) -> View:
        """The present view."""
        return self.paxos.view

    @property
    def others(self) -> list[int]:
        """All members but this server."""
        return [j for j in sorted(self.view.members) if j != self.id]

    def may_lead(self, now: float | None = None) -> bool:
        """Return whether this server may use the token, if it has it."""
        stopped = self.fenced or self.save_monitor.cannot_save(now)
        return not stopped and self.failure_detector.leads(self.view, now, grants=self.paxos.grants)

    @property
    def cannot_save(self) -> frozenset[int]:
        """The other members that respond and cannot save: they are not waited for, and do not vote."""
        return self.failure_detector.cannot_save(self.others) - self.suspected

    @property
    def withdrawable(self) -> bool:
        """Whether no change that an operator requested was voted for; otherwise it may still be decided."""
        return self.paxos.voted is None or all(proposal.why != OPERATOR for proposal in self.proposals)

    # --- Handshakes -----------------------------------------------------------------------------------------------

    def greeting(self, server: int, acked: int = 0) -> PeerHandshake:
        """Return the handshake for a server that has saved this server's messages up to this number."""
        return PeerHandshake(
            self.announcement,
            self.saved,
            self.view.epoch,
            self.new,
            self.chain.since(self._epochs.get(server, 0)),
            self.former,
            self._succession,
            self.paxos.grants,
            acked,
            self.keys.endorsement,
        )

    def authenticate(self, who: PeerHandshake, expected: int | None = None) -> None:
        """Raise a rejection unless the other server is a valid member; if it is not, nothing changes."""
        if who.server == self.id:
            raise Rejection("address", f"server {self.id} has reached itself. Correct the address of the other server")
        if expected is not None and who.server != expected:
            raise Rejection("address", f"server {who.server} answers where server {expected} should. Correct that")
        member, proofs = self._admissible(who)
        if proofs:
            self._adopt(proofs)
        if self.fenced:
            raise Rejection("stopped", self.fenced)
        self._epochs[who.server] = who.epoch
        if self.new:
            raise Rejection("pending", f"server {self.id} is not a member yet")
        known = self.lineages.get(who.server, "") if member.lineage == ANYBODY else member.lineage
        if known == NOBODY and who.new:
            self._let_in(who, member)
        if known and known != who.lineage:
            if who.former == known and who.new and who.succeeds(self.keys) and self._gone_before(who):
                self._let_in(who, member)
            if member.lineage == known and not who.new:  # it has not heard yet of the list that names another
                problem = f"another one has the place of server {who.server}. {REMEDY}"
                raise Rejection("membership", problem, Decided(self.chain.since(who.epoch)))
            raise Rejection("lineage", f"server {who.server} is another one than the one known here. {REMEDY}")
        latest = self.announcements.get(who.server)
        if latest is not None and latest.lineage == who.lineage and who.incarnation < latest.incarnation:
            if who.server in self.suspected:  # nobody else is there: its disk was put back
                raise RolledBack(f"server {who.server} was a later process than this one, which is gone")
            raise Rejection(
                "duplicate",
                f"a later process of server {who.server} has begun and was heard just now; this one must not go on. "
                "If it is to take the place of that one, stop that one, and start this one a little later",
                LaterIncarnation(latest),
            )
        known_checkpoints = self.known_checkpoints.get(who.server, 0)
        older = who.lineage == self.lineages.get(who.server) and who.checkpoints < known_checkpoints
        if older and who.incarnation != self.met_processes.get(
            who.server
        ):  # else it has saved since it sent this handshake
            raise RolledBack(f"server {who.server} has an older state than the one that it told of")
        if known == "" and who.new and self.view.epoch > 0:
            raise Rejection("lineage", f"server {who.server} has lost its state. {REMEDY}")
        self.lineages[who.server], self.announcements[who.server] = who.lineage, who.announcement
        self.endorsements[who.server] = who.endorsement
        self.met_processes[who.server] = who.incarnation
        self.known_checkpoints[who.server] = max(who.checkpoints, self.known_checkpoints.get(who.server, 0))

    def _admissible(self, who: PeerHandshake) -> tuple[Member, list[ViewProof]]:
        """Return the entry of a server and the proofs of later views that it has brought, or raise a rejection."""
        if not who.announcement.genuine(self.keys):
            raise Rejection("identity", f"the announcement of server {who.server} is not signed by its lineage")
        proofs = self.chain.follow(self.view, who.proofs, self._known_lineages())
        view = proofs[-1].view if proofs else self.view
        member = view.members.get(who.server)
        if member is None:
            problem = f"server {who.server} is not one of the servers. {RETURN}"
            raise Rejection("membership", problem, Decided(self.chain.since(who.epoch)))
        if who.announcement.certificate in view.revoked:
            problem = f"the certificate of server {who.server} was revoked. `spyker federation renew` makes another one"
            raise Rejection("revoked", problem, Decided(self.chain.since(who.epoch)))
        if member.lineage not in (ANYBODY, who.lineage):
            proofs = []  # whoever this is, it is not that member
            member = self.view.members.get(who.server, member)
        return member, proofs

    def known_lineage(self, server: int) -> str:
        """Return the lineage of a member: ``ANYBODY`` if it is not known, ``NOBODY`` if the member has not joined."""
        member = self.view.members.get(server)
        lineage = ANYBODY if member is None else member.lineage
        return self.lineages.get(server, ANYBODY) if lineage == ANYBODY else lineage

    def _known_lineages(self) -> dict[int, str]:
        """Return the lineages of members whose entries name none. A new server may have a namesake among those."""
        return self.lineages if self.new else {**self.lineages, self.id: self.lineage}

    def _gone_before(self, who: PeerHandshake) -> bool:
        """Return whether the member that it claims to succeed had stopped when the claim was first made."""
        lineage, since = self._claims.get(who.server, ("", 0.0))
        if lineage != who.lineage:
            since = self._now()
            self._claims[who.server] = who.lineage, since
        return who.server in self.suspected and self.failure_detector.listened(who.server) <= since

    def _outlived(self, server: int, lineage: str) -> bool:
        """Return whether a member has responded after this lineage claimed here to succeed it: it is a copy."""
        claimant, since = self._claims.get(server, ("", 0.0))
        return claimant == lineage and self.failure_detector.listened(server) > since

    def _let_in(self, who: PeerHandshake, member: Member) -> None:
        """Propose to put its lineage into the view, and reject it for now."""
        self.request(Proposal(ARRIVAL, MembershipChange(who.server, replace(member, lineage=who.lineage)), member))
        raise Rejection("pending", f"the servers are voting on server {who.server}; come again")

    def refused(self, server: int, lineage: str, rejection: Rejection) -> None:
        """React to a rejection by another server (``lineage`` is empty if it has not proven its own).

        What is proven counts, and what a member says of this server's state.
        """
        if isinstance(rejection.evidence, Decided):
            self._follow(rejection.evidence)
        elif isinstance(rejection.evidence, LaterIncarnation):
            self._hear_of(rejection.evidence.announcement)
        member = self.view.members.get(server)
        known = {self.lineages.get(server)} if member is None or member.lineage == ANYBODY else {member.lineage}
        if rejection.reason == "rolled-back" and member is not None and lineage and lineage in known:
            self.outdated = str(rejection)

    def fence(self, why: str) -> None:
        """Stop acting as a member."""
        self.fenced = self.fenced or why

    def met(self, who: PeerHandshake, at: float) -> None:
        """Note that a server has accepted a call that began at this time."""
        epoch = self.view.epoch if who.new else who.epoch
        self.failure_detector.connected(who.server, at, epoch, grants=who.grants)
        self.update_suspects()

    # --- Control messages -----------------------------------------------------------------------------------------

    def receive(self, sender: int, message: ControlMessage, *, saves: bool) -> None:
        """React to a control message. A server that cannot save yet (``saves``) does not vote.

        A suspected server answers to ballots, but starts and declines none: otherwise a thief of its key could hold up
        the vote on its successor without end.
        """
        if self.fenced or sender not in self.view.members:
            return
        if isinstance(message, Heartbeat):
            self._receive_heartbeat(sender, message)
        elif isinstance(message, Decided):
            self._follow(message)
        elif isinstance(message, LaterIncarnation):
            self._hear_of(message.announcement)
        elif saves and not (isinstance(message, Prepare | Declined) and sender in self.suspected):
            self.paxos.receive(sender, message)
            for server, epoch in self.paxos.outdated:
                self.outgoing.append((server, Decided(self.chain.since(epoch))))
            self.paxos.outdated.clear()

    def _receive_heartbeat(self, sender: int, beat: Heartbeat) -> None:
        self._epochs[sender] = beat.epoch
        if beat.epoch < self.view.epoch:
            self.outgoing.append((sender, Decided(self.chain.since(beat.epoch))))
        self.failure_detector.receive_heartbeat(sender, beat, self.view.epoch)
        self.known_checkpoints[sender] = max(beat.checkpoints, self.known_checkpoints.get(sender, 0))
        for announcement in beat.announcements:
            self._hear_of(announcement)
        if sender in self.suspected:
            self.update_suspects()

    def _hear_of(self, announcement: Announcement) -> None:
        """Note a later process of a known server; if it is one of this server, this one must stop."""
        j, mine = announcement.server, announcement.server == self.id
        if announcement.lineage != (self.lineage if mine else self.lineages.get(j)):
            return
        latest = self.announcement if mine else self.announcements.get(j)
        if latest is not None and announcement.incarnation <= latest.incarnation:
            return
        if not announcement.genuine(self.keys):
            return
        if mine:
            self.duplicated = True
            self.fence("duplicate: a later process of this server has begun, so this one must not go on")
        else:
            self.announcements[j] = announcement

    def update_suspects(self) -> None:
        """Update the suspects. Members that were announced and have not joined are among them."""
        absent = {j for j, member in self.view.members.items() if member.lineage == NOBODY}
        self.suspected = self.failure_detector.suspects(self.others) | absent

    def _agrees(self, prepare: Prepare) -> bool:
        """Return whether this server sees a reason for another server's proposal."""
        if prepare.why == RENEW:
            return self.failure_detector.token_missed_for(self.view.epoch) > self.renew_token_after / 2
        if prepare.why == SILENCE and self.remove_after is not None:
            gone = self.view.members.keys() - prepare.view.members.keys()
            return all(self.failure_detector.silent_for(j) > self.remove_after / 2 for j in gone)
        if prepare.why == ARRIVAL:
            after = prepare.view.members
            places = [j for j, now in self.view.members.items() if j in after and after[j].lineage != now.lineage]
            # Members that were announced and have not come are suspected, too.
            return all(j in self.suspected and not self._outlived(j, after[j].lineage) for j in places)
        return prepare.why != SILENCE

    # --- Regularly -------------------------------------------------------------------------------------------------

    def beat(self, *, has_token: bool) -> list[tuple[int, Heartbeat]]:
        """Return the heartbeats for all other servers."""
        saves = not self.save_monitor.cannot_save()
        if has_token and saves:
            self._token_at = self._now()
            self.failure_detector.saw_token(self.view.epoch)
        idle = None if self._token_at is None else self._now() - self._token_at
        announcements = tuple(self.announcements[j] for j in sorted(self.announcements))
        beats: list[tuple[int, Heartbeat]] = []
        for j in self.others:
            if self.view.members[j].lineage != NOBODY:
                plain = self.failure_detector.beat(j, self.view.epoch, grants=self.paxos.grants, idle=idle)
                beats.append((j, replace(plain, announcements=announcements, checkpoints=self.saved, saves=saves)))
        return beats

    def propose_if_needed(self, *, uses_token: bool) -> None:
        """Propose a change if one is due and it is this server's turn: servers with lower numbers go first."""
        self.proposals = [proposal for proposal in self.proposals if self._open(proposal)]
        absent = self.suspected | self.cannot_save
        reach = [j for j in self.view.voters if j not in absent]
        stopped = self.fenced or self.new or self.save_monitor.cannot_save()
        if stopped or not self.view.majority(reach):
            return
        turn = 1 + reach.index(self.id) / 2 if self.id in reach else 1.0  # others first, if they have lower numbers
        pause = 2 * self.failure_detector.suspect_after * turn
        now = self._now()
        if self.paxos.grants:
            self._voting_since = None
        elif self._voting_since is None:
            self._voting_since = now
        proposal = next(iter(self.proposals), None)
        if self._voting_since is not None:
            if now - self._voting_since > pause:
                self._voting_since = now
                self.paxos.propose(proposal or Proposal(FINISH))
        elif proposal is not None:
            self._propose(proposal, self.failure_detector.suspect_after)
        elif uses_token and self.failure_detector.token_missed_for(self.view.epoch) > self.renew_token_after * turn:
            self._propose(Proposal(RENEW), pause)
        elif self.remove_after is not None:
            for j in self.view.voters:
                if self.failure_detector.silent_for(j) > self.remove_after * turn and j != self.id:
                    self._propose(Proposal(SILENCE, MembershipChange(j, None)), pause)
                    break

    def _propose(self, proposal: Proposal, pause: float) -> None:
        """Propose, unless the last attempt is less than ``pause`` seconds ago."""
        if self._now() - self._tried > pause or self.paxos.open_ballot is None:
            self._tried = self._now()
            self.paxos.propose(proposal)

    def request(self, proposal: Proposal) -> None:
        """Queue a proposal."""
        if proposal not in self.proposals:
            self.proposals.append(proposal)

    def withdraw(self) -> None:
        """Withdraw all proposals of operators."""
        for proposal in self.proposals:
            if proposal.why == OPERATOR:
                self.paxos.withdraw(proposal)
        self.proposals = [proposal for proposal in self.proposals if proposal.why != OPERATOR]

    def _open(self, proposal: Proposal) -> bool:
        """Return whether a proposal is neither fulfilled nor void."""
        assert proposal.change is not None
        now = self.view.members.get(proposal.change.server)
        return now == proposal.before and now != proposal.change.member

    # --- A new view ----------------------------------------------------------------------------------------------

    def _follow(self, decided: Decided) -> None:
        """Adopt the views that another server has proven; ignore proofs that are not valid or of no use."""
        try:
            proofs = self.chain.follow(self.view, decided.proofs, self._known_lineages())
        except Rejection:
            return
        if proofs:
            self._adopt(proofs)

    def _adopt(self, proofs: list[ViewProof]) -> None:
        """Adopt the last of some views, all of which are proven."""
        for proof in proofs:
            self.chain.append(proof)
        mine = proofs[-1].view.members.get(self.id)
        if mine is not None and mine.lineage == self.lineage:
            self.new = False
        self.paxos.adopt(proofs[-1])
        self._check_view()

    def force(self, proof: ViewProof) -> None:
        """Change the membership without a vote, or raise a rejection: the certificate authority must have signed it."""
        if not proof.authority or proof.view.epoch <= self.view.epoch:
            raise Rejection("proof", f"this is no forced change of epoch {self.view.epoch}")
        self._adopt(self.chain.follow(self.view, [proof], self._known_lineages()))

    def _check_view(self) -> None:
        """React to a new view."""
        before, after = self._last_view, self.view
        if before is after:
            return
        self._last_view = after
        for j in before.members.keys() | after.members.keys():
            then, now = before.members.get(j), after.members.get(j)
            if j != self.id and (then is None or now is None or then.lineage != now.lineage):
                for known in (
                    self.lineages,
                    self.announcements,
                    self.known_checkpoints,
                    self.met_processes,
                    self._claims,
                ):
                    known.pop(j, None)
                self.endorsements.pop(j, None)
                self.failure_detector.forget(j)
        mine = after.members.get(self.id)
        if not self.new and (mine is None or mine.lineage not in (ANYBODY, self.lineage)):
            fate, remedy = ("was removed", RETURN) if mine is None else ("was replaced", REMEDY)
            self.fence(f"server {self.id} {fate} in epoch {after.epoch}, so this one must not go on. {remedy}")
        self._token_at, self._voting_since = None, None
        self.failure_detector.renew(after.epoch)
        self.adopted.append((before, after))
        self.update_suspects()

    def take_outgoing(self) -> tuple[list[tuple[int, ControlMessage]], list[tuple[int, ControlMessage]]]:
        """Return messages to be sent at once, and messages to be sent when the state is saved."""
        at_once, self.outgoing = self.outgoing, []
        paxos, self.paxos.outgoing = self.paxos.outgoing, []
        free = (Decided, Declined)
        at_once += [(j, message) for j, message in paxos if isinstance(message, free)]
        return at_once, [(j, message) for j, message in paxos if not isinstance(message, free)]

    # --- Checkpoints -----------------------------------------------------------------------------------------------

    def numbers(self) -> dict[str, Any]:
        """Return the state for a checkpoint, and count it."""
        self.saves += 1
        return membership_numbers(self)

    def restore(self, numbers: dict[str, Any]) -> None:
        """Restore the state from a checkpoint."""
        restore_membership(self, numbers)
        self._last_view = self.view
        if self.view.epoch > 0:
            self.failure_detector.renew(self.view.epoch)
        self._token_at = None
