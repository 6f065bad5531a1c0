"""Votes on the membership, and on a new token when the old one is lost: one instance of Paxos per epoch.

Theory of operation
-------------------
The voters of epoch e decide the view of epoch e + 1 by Paxos (Lamport, The Part-Time Parliament). A proposer asks all
voters for a *promise* under a ballot number that is higher than any it knows. A voter that promises ignores lower
ballots, and reports its last vote, if it has voted. With promises of a majority, the proposer asks for votes: for the
view that was voted for in the highest ballot that was reported, or else for its own proposal. A view that a majority
has voted for in one ballot is decided, and all members are informed. Promises are signed, and shown to those who are
asked to vote, so that a proposer cannot propose anything else than it must.

So there are never two views of one epoch, however processes crash and messages are lost, duplicated or delayed, and a
minority decides nothing. Voters may decline proposals that they see no reason for, such as a new token while the old
one is in use.

A vote is signed. The votes of a majority are the proof of a view (:mod:`~spyker.node.view_proofs`), without which
nobody adopts it.

The node sends these messages only when the state that they depend on is on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from spyker.node.control_messages import (
    Accept,
    Accepted,
    ControlMessage,
    Decided,
    Declined,
    Prepare,
    Promise,
    to_json,
)
from spyker.node.keys import Keys
from spyker.node.view_proofs import (
    SignedPromise,
    ViewProof,
    Vote,
    cast,
    is_signed,
    is_vote,
    promise_statement,
    signed,
)
from spyker.node.views import Member, MembershipChange, View

WIDTH = 1 << 16  # ballot numbers are unique: a multiple of this plus the proposer's number
STEP = (1 << 12) * WIDTH  # a voter's ballot rises by this at most, so that no single message uses the numbers up


class Proposal(NamedTuple):
    """A proposed change, and the reason for it."""

    why: str
    change: MembershipChange | None = None
    """``None``: a new token."""
    before: Member | None = None
    """The member's present entry. The proposal is void once the entry is another one."""


class Ballot:
    """A ballot of this server."""

    def __init__(self, proposal: Proposal, ballot: int, view: View) -> None:
        self.proposal, self.ballot, self.view = proposal, ballot, view
        self.promises: dict[int, SignedPromise] = {}
        self.votes: dict[int, Vote] = {}
        self.behind: set[int] = set()  # voters whose ballots have to be raised first
        self.asking = True  # for promises; then for votes


class MembershipPaxos:
    """A voter and proposer."""

    def __init__(
        self,
        id: int,
        view: View,
        agrees: Callable[[Prepare], bool],
        keys: Keys,
        lineages: Callable[[], Mapping[int, str]],
    ) -> None:
        """``agrees`` returns whether this server sees a reason for a proposal; ``lineages`` those that it has met."""
        self.id, self.view, self._agrees, self.keys, self._lineages = id, view, agrees, keys, lineages
        self.promised = 0
        self.voted: tuple[int, View] | None = None
        self.open_ballot: Ballot | None = None
        self._declined_for = 0  # the highest ballot that a voter has declined the last one for, as it says
        self.decided: Callable[[ViewProof], None] = self.adopt
        """Called with the proof of a view that this server's ballot has decided."""
        self.outdated: list[tuple[int, int]] = []
        """Servers that vote on a former epoch, and the epoch."""
        self.outgoing: list[tuple[int, ControlMessage]] = []
        """Receivers and messages, to be sent once the state is saved."""
        self.changed = False
        """Whether the state has changed since the last checkpoint."""

    @property
    def grants(self) -> bool:
        """Whether this server has promised nothing about the next epoch."""
        return self.promised == 0

    # --- Proposing -------------------------------------------------------------------------------------------------

    def propose(self, proposal: Proposal) -> None:
        """Start a ballot, in place of any open one."""
        if self.id not in self.view.voters:
            return
        above = max(self.promised, self._declined_for) // WIDTH * WIDTH + WIDTH + self.id
        ballot, self._declined_for = min(above, self._highest(self.promised)), 0
        view = self.view.following(self.id, proposal.change)
        self.open_ballot = Ballot(proposal, ballot, view)
        prepare = Prepare(self.view.epoch, ballot, view, proposal.why)
        self._send_voters(prepare)
        self._receive_own(self._prepared(self.id, prepare))

    def _highest(self, promised: int) -> int:
        """Return the highest ballot of this server that a voter with this promise allows."""
        return (promised + STEP - self.id) // WIDTH * WIDTH + self.id

    def _catch_up(self, voter: int, promised: int) -> None:
        """Ask a voter again whose ballot is so much lower that it has to be raised step by step."""
        if self.open_ballot is not None:
            self.open_ballot.behind.add(voter)
            ballot = min(self.open_ballot.ballot, self._highest(promised))
            why = self.open_ballot.proposal.why
            self.outgoing.append((voter, Prepare(self.view.epoch, ballot, self.open_ballot.view, why)))

    def withdraw(self, proposal: Proposal) -> None:
        """Withdraw a proposal, unless voters may have been asked to vote for it already."""
        if self.open_ballot is not None and self.open_ballot.proposal == proposal and self.open_ballot.asking:
            self.open_ballot = None  # voters that have promised wait for another ballot

    def _send_voters(self, message: ControlMessage) -> None:
        self.outgoing += [(j, message) for j in self.view.voters if j != self.id]

    def _receive_own(self, message: ControlMessage) -> None:
        """Receive this server's own answer."""
        self.receive(self.id, message)

    def _promise(self, sender: int, promise: Promise) -> None:
        open_ballot = self.open_ballot
        if open_ballot is None or not open_ballot.asking or promise.ballot > open_ballot.ballot:
            return
        if promise.ballot < open_ballot.ballot:
            if sender in open_ballot.behind:
                self._catch_up(sender, promise.ballot)
            return
        if not self._is_promise(sender, promise.ballot, promise.promise):
            return
        open_ballot.promises[sender] = promise.promise
        if self.view.majority(open_ballot.promises):
            open_ballot.asking = False
            open_ballot.view = last_vote(open_ballot.promises) or open_ballot.view
            accept = Accept(self.view.epoch, open_ballot.ballot, open_ballot.view, dict(open_ballot.promises))
            self._send_voters(accept)
            self._receive_own(self._vote(self.id, accept))

    def _is_promise(self, voter: int, ballot: int, promise: SignedPromise) -> bool:
        """Return whether a voter has signed a promise, and reports a vote that it may have cast, or none."""
        if (promise.voted is None) != (promise.view is None):
            return False
        if promise.view is not None and not self.view.is_followed_by(promise.view):
            return False
        said = promise_statement(self.keys.federation, voter, self.view, ballot, promise.voted, promise.view)
        return is_signed(self.keys, self._lineages(), voter, promise.signature, self.view, said)

    def _accepted(self, sender: int, accepted: Accepted) -> None:
        open_ballot = self.open_ballot
        if open_ballot is None or open_ballot.asking or accepted.ballot != open_ballot.ballot:
            return
        ballot, view, vote = open_ballot.ballot, open_ballot.view, accepted.vote
        if not is_vote(self.keys, self._lineages(), sender, vote, self.view, ballot, view):
            return
        open_ballot.votes[sender] = vote
        if self.view.decided_by(view, open_ballot.votes):
            self.decided(ViewProof(view, self.view, ballot, dict(sorted(open_ballot.votes.items()))))

    # --- Voting ----------------------------------------------------------------------------------------------------

    def receive(self, sender: int, message: ControlMessage) -> None:
        """React to a message of another server, or of this one."""
        epoch: int = getattr(message, "epoch", -1)
        if epoch < self.view.epoch and sender != self.id:
            if isinstance(message, Prepare | Accept):
                self.outdated.append((sender, epoch))  # that is decided
            return
        if epoch != self.view.epoch or not {sender, self.id} <= set(self.view.voters):
            return
        match message:
            case Prepare():
                self._reply(sender, self._prepared(sender, message))
            case Accept():
                self._reply(sender, self._vote(sender, message))
            case Promise():
                self._promise(sender, message)
            case Accepted():
                self._accepted(sender, message)
            case Declined() if self.open_ballot is not None and message.ballot == self.open_ballot.ballot:
                if message.ballot - message.promised > STEP:
                    self._catch_up(sender, message.promised)
                else:  # the ballot stays open: a majority may do without this voter, whose word may be a lie
                    self._declined_for = max(self._declined_for, message.promised)

    def _reply(self, sender: int, message: ControlMessage) -> None:
        if sender != self.id:
            self.outgoing.append((sender, message))

    def _prepared(self, sender: int, prepare: Prepare) -> ControlMessage:
        """Promise, unless a higher ballot was promised or there is no reason for this one."""
        allowed = self._allowed(sender, prepare.ballot, prepare.view) and prepare.ballot > self.promised
        if not allowed or not (sender == self.id or not self.grants or self._agrees(prepare)):
            return Declined(prepare.epoch, prepare.ballot, self.promised)
        self.promised, self.changed = prepare.ballot, True
        ballot, view = self.voted or (None, None)
        said = promise_statement(self.keys.federation, self.id, self.view, prepare.ballot, ballot, view)
        promise = SignedPromise(signed(self.keys, self.id, self.view, said), ballot, view)
        return Promise(prepare.epoch, prepare.ballot, promise)

    def _vote(self, sender: int, accept: Accept) -> ControlMessage:
        if not self._allowed(sender, accept.ballot, accept.view) or accept.ballot < self.promised:
            return Declined(accept.epoch, accept.ballot, self.promised)
        if sender != self.id and not self._justified(accept):
            return Declined(accept.epoch, accept.ballot, self.promised)
        if self.voted is not None and self.voted[0] == accept.ballot and self.voted[1] != accept.view:
            return Declined(accept.epoch, accept.ballot, self.promised)  # it asks for two votes in one ballot
        self.promised, self.voted, self.changed = accept.ballot, (accept.ballot, accept.view), True
        return Accepted(accept.epoch, accept.ballot, cast(self.keys, self.id, self.view, accept.ballot, accept.view))

    def _justified(self, accept: Accept) -> bool:
        """Return whether a majority has promised, and the proposed view is the last that one of them voted for."""
        promises = accept.promises
        if not self.view.majority(promises) or (last_vote(promises) or accept.view) != accept.view:
            return False
        return all(self._is_promise(j, accept.ballot, promise) for j, promise in promises.items())

    def _allowed(self, sender: int, ballot: int, view: View) -> bool:
        """Return whether a ballot is the sender's own, not too high, and for a possible successor of the view."""
        return ballot % WIDTH == sender and ballot <= self.promised + STEP and self.view.is_followed_by(view)

    # --- What was decided ------------------------------------------------------------------------------------------

    def adopt(self, proof: ViewProof) -> None:
        """Adopt the view of a later epoch, and inform everybody who is concerned."""
        everybody = {*proof.previous.members, *self.view.members, *proof.view.members} - {self.id}
        self.outgoing += [(j, Decided((proof,))) for j in sorted(everybody)]
        self.view, self.promised, self.voted, self.open_ballot, self.changed = proof.view, 0, None, None, True
        self._declined_for = 0

    # --- Checkpoints -----------------------------------------------------------------------------------------------

    def numbers(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        ballot, view = self.voted or (0, None)
        return {
            "view": text(self.view),
            "promised": self.promised,
            "voted": ballot,
            "voted_view": None if view is None else text(view),
        }

    def restore(self, numbers: dict[str, Any]) -> None:
        """Restore the state from a checkpoint."""
        self.view, self.promised = read_view(numbers["view"]), numbers["promised"]
        self.voted = None if numbers["voted_view"] is None else (numbers["voted"], read_view(numbers["voted_view"]))


def last_vote(promises: Mapping[int, SignedPromise]) -> View | None:
    """Return the view that was voted for in the highest ballot that promises report."""
    voted = [(promise.voted, promise.view) for promise in promises.values() if promise.voted is not None]
    return max(voted, key=lambda each: each[0] or 0)[1] if voted else None


def text(view: View) -> str:
    """Return a view as a checkpoint holds it."""
    return to_json(view).decode()


def read_view(text: str) -> View:
    """Read a view from a checkpoint."""
    return msgspec.json.decode(text, type=View)
