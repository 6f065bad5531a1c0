"""How servers agree on who they are, and on a new token when the old one is lost: a vote for each epoch.

Theory of operation
-------------------
What follows epoch e is decided by the voters of epoch e, by Paxos (Lamport, The Part-Time Parliament): whoever wants a
change asks all voters for a *promise* under a ballot number that is higher than any it knows. Who promises takes no
part in lower ballots, and tells for what it has voted before, if it has. With promises of a majority, the proposer asks
for votes: for what was voted for in the highest ballot that it was told of, or else for what it wants. A list that a
majority has voted for in one ballot is the list of epoch e + 1, for ever, and everybody is told.

So there are never two lists of one epoch, whoever dies and however messages are lost, doubled or late; and a minority
decides nothing. Voters may decline what they see no reason for, such as a new token while the old one is around.

Nothing here is sent before the state that it speaks of is on disk: that is the node's duty.
"""

from __future__ import annotations

from collections.abc import Callable
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
from spyker.node.views import Member, MembershipChange, View

WIDTH = 1 << 16  # ballots are numbered by rounds of so many, one for each server


class Proposal(NamedTuple):
    """What this server would have decided, and why."""

    why: str
    change: MembershipChange | None = None
    """Nothing: a new token."""
    before: Member | None = None
    """What the entry is now; if it is another one, the wish is void."""


class Ballot:
    """A ballot that this server holds."""

    def __init__(self, proposal: Proposal, ballot: int, view: View) -> None:
        self.proposal, self.ballot, self.view = proposal, ballot, view
        self.promises: dict[int, Promise] = {}
        self.votes: set[int] = set()
        self.asking = True  # for promises; then for votes


class MembershipPaxos:
    """One voter, and proposer."""

    def __init__(self, id: int, view: View, agrees: Callable[[Prepare], bool]) -> None:
        """``agrees`` says whether this server sees a reason for a proposal."""
        self.id, self.view, self._agrees = id, view, agrees
        self.promised = 0
        self.voted: tuple[int, View] | None = None
        self.open_ballot: Ballot | None = None
        self.outgoing: list[tuple[int, ControlMessage]] = []
        """What is to be told, to whom, once the state is saved."""
        self.changed = False
        """Whether there is something to save."""

    @property
    def grants(self) -> bool:
        """Whether this server has promised nothing about the next epoch."""
        return self.promised == 0

    # --- Proposing -------------------------------------------------------------------------------------------------

    def propose(self, proposal: Proposal) -> None:
        """Hold a ballot, in place of any that is under way."""
        if self.id not in self.view.voters:
            return
        ballot = (self.promised // WIDTH + 1) * WIDTH + self.id
        view = self.view.following(self.id, proposal.change)
        self.open_ballot = Ballot(proposal, ballot, view)
        prepare = Prepare(self.view.epoch, ballot, view, proposal.why)
        self._send_voters(prepare)
        self._receive_own(self._prepared(prepare))

    def withdraw(self, proposal: Proposal) -> None:
        """Withdraw a proposal, unless voters may have been asked to vote for it already."""
        if self.open_ballot is not None and self.open_ballot.proposal == proposal and self.open_ballot.asking:
            self.open_ballot = None  # voters that have promised wait for another ballot

    def _send_voters(self, message: ControlMessage) -> None:
        self.outgoing += [(j, message) for j in self.view.voters if j != self.id]

    def _receive_own(self, message: ControlMessage) -> None:
        """What this server answers itself."""
        self.receive(self.id, message)

    def _promise(self, sender: int, promise: Promise) -> None:
        open_ballot = self.open_ballot
        if open_ballot is None or not open_ballot.asking or promise.ballot != open_ballot.ballot:
            return
        open_ballot.promises[sender] = promise
        if self.view.majority(open_ballot.promises):
            open_ballot.asking = False
            voted = [(p.voted, p.view) for p in open_ballot.promises.values() if p.voted is not None]
            if voted:
                _, view = max(voted, key=lambda each: each[0] or 0)
                assert view is not None
                open_ballot.view = view
            accept = Accept(self.view.epoch, open_ballot.ballot, open_ballot.view)
            self._send_voters(accept)
            self._receive_own(self._vote(accept))

    def _accepted(self, sender: int, accepted: Accepted) -> None:
        open_ballot = self.open_ballot
        if open_ballot is None or open_ballot.asking or accepted.ballot != open_ballot.ballot:
            return
        open_ballot.votes.add(sender)
        if self.view.majority(open_ballot.votes):
            self.adopt(open_ballot.view)

    # --- Voting ----------------------------------------------------------------------------------------------------

    def receive(self, sender: int, message: ControlMessage) -> None:
        """Something was said, by another server or by this one itself."""
        if isinstance(message, Decided):
            self.adopt(message.view)
            return
        epoch: int = getattr(message, "epoch", -1)
        if epoch < self.view.epoch and sender != self.id:
            if isinstance(message, Prepare | Accept):
                self.outgoing.append((sender, Decided(self.view)))  # that is decided
            return
        if epoch != self.view.epoch or sender not in self.view.voters:
            return
        match message:
            case Prepare():
                self._reply(sender, self._prepared(message))
            case Accept():
                self._reply(sender, self._vote(message))
            case Promise():
                self._promise(sender, message)
            case Accepted():
                self._accepted(sender, message)
            case Declined() if self.open_ballot is not None and message.ballot == self.open_ballot.ballot:
                self._outbid(message.promised)

    def _reply(self, sender: int, message: ControlMessage) -> None:
        if sender != self.id:
            self.outgoing.append((sender, message))

    def _prepared(self, prepare: Prepare) -> ControlMessage:
        """Promise, unless a later ballot was promised, or there is no reason for one."""
        own = prepare.ballot % WIDTH == self.id
        if prepare.ballot <= self.promised or not (own or not self.grants or self._agrees(prepare)):
            return Declined(prepare.epoch, prepare.ballot, self.promised)
        self.promised, self.changed = prepare.ballot, True
        ballot, view = self.voted or (None, None)
        return Promise(prepare.epoch, prepare.ballot, ballot, view)

    def _vote(self, accept: Accept) -> ControlMessage:
        if accept.ballot < self.promised:
            return Declined(accept.epoch, accept.ballot, self.promised)
        self.promised, self.voted, self.changed = accept.ballot, (accept.ballot, accept.view), True
        return Accepted(accept.epoch, accept.ballot)

    def _outbid(self, promised: int) -> None:
        """Somebody holds a later ballot: leave it to them, for now."""
        if promised > self.promised:
            self.promised, self.changed = promised, True
            self.open_ballot = None

    # --- What was decided ------------------------------------------------------------------------------------------

    def adopt(self, view: View) -> bool:
        """Another epoch has begun, if this is news."""
        if view.epoch <= self.view.epoch:
            return False
        everybody = {*self.view.members, *view.members} - {self.id}
        self.outgoing += [(j, Decided(view)) for j in sorted(everybody)]
        self.view, self.promised, self.voted, self.open_ballot, self.changed = view, 0, None, None, True
        return True

    # --- Checkpoints -----------------------------------------------------------------------------------------------

    def numbers(self) -> dict[str, Any]:
        """For a checkpoint."""
        ballot, view = self.voted or (0, None)
        return {
            "view": text(self.view),
            "promised": self.promised,
            "voted": ballot,
            "voted_view": None if view is None else text(view),
        }

    def restore(self, numbers: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        self.view, self.promised = read_view(numbers["view"]), numbers["promised"]
        self.voted = None if numbers["voted_view"] is None else (numbers["voted"], read_view(numbers["voted_view"]))


def text(view: View) -> str:
    """A list as a checkpoint holds it."""
    return to_json(view).decode()


def read_view(text: str) -> View:
    """A list back again."""
    return msgspec.json.decode(text, type=View)
