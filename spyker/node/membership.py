"""What one server knows of the others: the members, the suspects, and who may use the token.

It combines the decisions of :mod:`~spyker.node.paxos` with the observations of :mod:`~spyker.node.failure_detector`,
and authenticates other servers:

- Each number has one *lineage*, and of it one valid *incarnation*, the latest. Two copies of one state folder are two
  incarnations; the older one is *fenced*: it must stop.
- A server whose state is older than the one that others know of restarts as a new member, under a new lineage, and gets
  a bootstrap state.
- A new server is admitted if its number was announced, once a vote has put its lineage into the view.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from spyker.node.control_messages import (
    ControlMessage,
    Decided,
    Declined,
    Heartbeat,
    PeerHandshake,
    Prepare,
    ProcessIncarnation,
)
from spyker.node.failure_detector import FailureDetector
from spyker.node.paxos import MembershipPaxos, Proposal
from spyker.node.rejection import REMEDY, RETURN, Rejection, RolledBack
from spyker.node.save_monitor import SaveMonitor
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
        lineage: str = "",
        incarnation: ProcessIncarnation | None = None,
        former: str = "",
        new: bool = False,
        suspect_after: float = 5.0,
        renew_token_after: float = 10.0,
        remove_after: float | None = None,
    ) -> None:
        """``new``: this server has no state and is not a member yet; ``view`` is then what its configuration says."""
        self.id, self.lineage, self.former, self.new = id, lineage, former, new
        self.incarnation = incarnation or ProcessIncarnation()
        self.renew_token_after, self.remove_after = renew_token_after, remove_after
        self.saves = 0  # checkpoints taken
        self.saved = 0  # and of these, on disk
        self.paxos = MembershipPaxos(id, view, self._agrees)
        self.failure_detector = FailureDetector(id, now, suspect_after)
        self.save_monitor = SaveMonitor(now, suspect_after)
        self._now = now
        self.lineages: dict[int, str] = {}  # of the other servers that connected
        self.incarnations: dict[int, ProcessIncarnation] = {}
        self.known_checkpoints: dict[int, int] = {}
        self._met: dict[int, ProcessIncarnation] = {}  # incarnations that connected themselves
        self._claims: dict[int, tuple[str, float]] = {}  # lineages that claim to succeed a member, and since when
        self.suspected: frozenset[int] = frozenset()
        self.proposals: list[Proposal] = []
        self.fenced = ""  # why this server must stop
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

    def greeting(self, acked: int = 0) -> PeerHandshake:
        """Return the handshake for a server that has saved this server's messages up to this number."""
        view = None if self.new else self.view
        grants = self.paxos.grants
        return PeerHandshake(self.id, self.lineage, self.incarnation, self.saved, view, self.former, grants, acked)

    def authenticate(self, who: PeerHandshake, expected: int | None = None) -> None:
        """Raise a rejection unless the other server is a valid member. A later view of it is adopted in any case."""
        if who.server == self.id:
            raise Rejection("address", f"server {self.id} has reached itself. Correct the address of the other server")
        if expected is not None and who.server != expected:
            raise Rejection("address", f"server {who.server} answers where server {expected} should. Correct that")
        if who.view is not None:
            self._adopt(who.view)
        if self.fenced:
            raise Rejection("stopped", self.fenced)
        if self.new:
            raise Rejection("pending", f"server {self.id} is not a member yet")
        member = self.view.members.get(who.server)
        if member is None:
            raise Rejection("membership", f"server {who.server} is not one of the servers. {RETURN}")
        known = self.lineages.get(who.server, "") if member.lineage == ANYBODY else member.lineage
        if known == NOBODY and who.view is None:
            self._let_in(who, member)
        if known and known != who.lineage:
            if who.former == known and who.view is None and self._gone_before(who):
                self._let_in(who, member)
            if member.lineage == known and who.view is not None:  # it has not heard yet of the list that names another
                raise Rejection("membership", f"another one has the place of server {who.server}. {REMEDY}")
            raise Rejection("lineage", f"server {who.server} is another one than the one known here. {REMEDY}")
        life = self.incarnations.get(who.server, ProcessIncarnation())
        if who.lineage == self.lineages.get(who.server) and who.incarnation < life:
            if who.server in self.suspected:  # nobody else is there: its disk was put back
                raise RolledBack(f"server {who.server} was a later process than this one, which is gone")
            raise Rejection(
                "duplicate",
                f"a later process of server {who.server} has begun and was heard just now; this one must not go on. "
                "If it is to take the place of that one, stop that one, and start this one a little later",
            )
        known_checkpoints = self.known_checkpoints.get(who.server, 0)
        older = who.lineage == self.lineages.get(who.server) and who.checkpoints < known_checkpoints
        if older and who.incarnation != self._met.get(who.server):  # else it has saved since it sent this handshake
            raise RolledBack(f"server {who.server} has an older state than the one that it told of")
        if known == "" and who.view is None and self.view.epoch > 0:
            raise Rejection("lineage", f"server {who.server} has lost its state. {REMEDY}")
        self.lineages[who.server], self.incarnations[who.server] = who.lineage, who.incarnation
        self._met[who.server] = who.incarnation
        self.known_checkpoints[who.server] = max(who.checkpoints, self.known_checkpoints.get(who.server, 0))

    def _gone_before(self, who: PeerHandshake) -> bool:
        """Return whether the member that it claims to succeed had stopped when the claim was first made."""
        lineage, since = self._claims.get(who.server, ("", 0.0))
        if lineage != who.lineage:
            since = self._now()
            self._claims[who.server] = who.lineage, since
        return who.server in self.suspected and self.failure_detector.listened(who.server) <= since

    def _let_in(self, who: PeerHandshake, member: Member) -> None:
        """Propose to put its lineage into the view, and reject it for now."""
        self.request(Proposal(ARRIVAL, MembershipChange(who.server, replace(member, lineage=who.lineage)), member))
        raise Rejection("pending", f"the servers are voting on server {who.server}; come again")

    def refused(self, rejection: Rejection) -> None:
        """React to the rejection of this server by another."""
        if rejection.reason in ("duplicate", "membership") and not self.new:
            self.fence(str(rejection))
        elif rejection.reason == "rolled-back":
            self.outdated = str(rejection)

    def fence(self, why: str) -> None:
        """Stop acting as a member."""
        self.fenced = self.fenced or why

    def met(self, who: PeerHandshake, at: float) -> None:
        """Note that a server has accepted a call that began at this time."""
        epoch = self.view.epoch if who.view is None else who.view.epoch
        self.failure_detector.connected(who.server, at, epoch, grants=who.grants)
        self.update_suspects()

    # --- Control messages -----------------------------------------------------------------------------------------

    def receive(self, sender: int, message: ControlMessage, *, saves: bool) -> None:
        """React to a control message. A server that cannot save yet (``saves``) does not vote."""
        if self.fenced or sender not in self.view.members:
            return
        if isinstance(message, Heartbeat):
            self._receive_heartbeat(sender, message)
        elif isinstance(message, Decided):
            self._adopt(message.view)
        elif saves:
            self.paxos.receive(sender, message)
            self._check_view()

    def _receive_heartbeat(self, sender: int, beat: Heartbeat) -> None:
        if beat.epoch < self.view.epoch:
            self.outgoing.append((sender, Decided(self.view)))
        self.failure_detector.receive_heartbeat(sender, beat, self.view.epoch)
        self.known_checkpoints[sender] = max(beat.checkpoints, self.known_checkpoints.get(sender, 0))
        for j, (lineage, life) in beat.incarnations.items():
            if j == self.id and lineage == self.lineage and self.incarnation < life:
                self.fence("duplicate: another server has met a later process of this one, so this one must not go on")
            elif self.lineages.get(j) == lineage:
                self.incarnations[j] = max(life, self.incarnations.get(j, ProcessIncarnation()))
        if sender in self.suspected:
            self.update_suspects()

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
            return all(j in self.suspected for j in places)  # who was announced and has not come is suspected
        return prepare.why != SILENCE

    # --- Regularly -------------------------------------------------------------------------------------------------

    def beat(self, *, has_token: bool) -> list[tuple[int, ControlMessage]]:
        """Return the heartbeats for all other servers."""
        saves = not self.save_monitor.cannot_save()
        if has_token and saves:
            self._token_at = self._now()
            self.failure_detector.saw_token(self.view.epoch)
        idle = None if self._token_at is None else self._now() - self._token_at
        incarnations = {j: (self.lineages[j], life) for j, life in self.incarnations.items() if j in self.lineages}
        beats: list[tuple[int, ControlMessage]] = []
        for j in self.others:
            if self.view.members[j].lineage != NOBODY:
                plain = self.failure_detector.beat(j, self.view.epoch, grants=self.paxos.grants, idle=idle)
                beats.append((j, replace(plain, incarnations=incarnations, checkpoints=self.saved, saves=saves)))
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
        self._check_view()

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

    def _adopt(self, view: View) -> None:
        if self.new and view.epoch >= self.view.epoch:
            member = view.members.get(self.id)
            if member is not None and member.lineage == self.lineage:
                self.new = False
                self.paxos.adopt(view)
        elif not self.new:
            self.paxos.adopt(view)
        self._check_view()

    def force(self, change: MembershipChange) -> None:
        """Change the membership without a vote: only if the other servers are gone for good."""
        self.paxos.adopt(self.view.following(self.id, change))
        self._check_view()

    def _check_view(self) -> None:
        """React to a new view."""
        before, after = self._last_view, self.view
        if before is after:
            return
        self._last_view = after
        for j in before.members.keys() | after.members.keys():
            then, now = before.members.get(j), after.members.get(j)
            if j != self.id and (then is None or now is None or then.lineage != now.lineage):
                for known in (self.lineages, self.incarnations, self.known_checkpoints, self._met, self._claims):
                    known.pop(j, None)
                self.failure_detector.forget(j)
        mine = after.members.get(self.id)
        if mine is None or mine.lineage not in (ANYBODY, self.lineage):
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
        self.paxos.changed = False
        return {
            "paxos": self.paxos.numbers(),
            "checkpoints": self.saves,
            "lineages": {str(j): lineage for j, lineage in self.lineages.items()},
            "incarnations": {str(j): [life.incarnation, life.nonce] for j, life in self.incarnations.items()},
            "known_checkpoints": {str(j): saves for j, saves in self.known_checkpoints.items()},
            "met": {str(j): [life.incarnation, life.nonce] for j, life in self._met.items()},
        }

    def restore(self, numbers: dict[str, Any]) -> None:
        """Restore the state from a checkpoint."""
        self.paxos.restore(numbers["paxos"])
        self._last_view = self.view
        self.saves = self.saved = numbers["checkpoints"]
        self.lineages = {int(j): lineage for j, lineage in numbers["lineages"].items()}
        self.incarnations = {int(j): ProcessIncarnation(*life) for j, life in numbers["incarnations"].items()}
        self.known_checkpoints = {int(j): saves for j, saves in numbers["known_checkpoints"].items()}
        self._met = {int(j): ProcessIncarnation(*life) for j, life in numbers["met"].items()}
        if self.view.epoch > 0:
            self.failure_detector.renew(self.view.epoch)
        self._token_at = None
