"""Deliberately broken servers. Each bug is one that somebody could have written, and a campaign must find it.

``BUGS`` has, for each, what it does to the code, a seed that shows it quickly, and words of the check that caught it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from spyker.algorithms.spyker import Spyker
from spyker.node.control_messages import Announcement
from spyker.node.effects import AcknowledgePeer, SendPeer
from spyker.node.events import Handled
from spyker.node.failure_detector import FailureDetector
from spyker.node.membership import RENEW, Membership
from spyker.node.node import STEPS, Node
from spyker.node.outbox import Outbox, OutboxEntry
from spyker.node.pending_updates import PendingUpdates
from spyker.node.save_monitor import SaveMonitor
from spyker.node.task_tokens import CONTENT, TaskTokens
from spyker.node.view_proofs import ViewChain, ViewProof
from spyker.node.views import View
from spyker.protocol.server import Server
from spyker.robust.claimed_sizes import ClaimedSizes
from spyker.robust.update_rates import UpdateRates
from spyker.sim.sim_process import SimProcess


def token_without_a_vote(patch: pytest.MonkeyPatch) -> None:
    """Whoever misses the token makes one, without asking."""
    propose = Membership._propose

    def hasty(self: Membership, wish: Any, pause: float) -> None:
        if wish.why == RENEW:
            unsigned = ViewProof(self.view.following(self.id), self.view)
            self._adopt([unsigned])
        else:
            propose(self, wish, pause)

    patch.setattr(Membership, "_propose", hasty)


def tokens_of_any_epoch(patch: pytest.MonkeyPatch) -> None:
    """A token that was given up for lost is taken for the one there is."""
    take = Spyker.rcv_token

    def gullible(self: Spyker, token: Any) -> None:
        take(self, token if token.epoch == self.epoch else type(token)(self.epoch, token.bid, tuple(self.ages)))

    patch.setattr(Spyker, "rcv_token", gullible)


def answers_are_not_remembered(patch: pytest.MonkeyPatch) -> None:
    """An answer that is offered again, because a connection broke, is applied again."""

    def forgetful(self: TaskTokens, client: int, number: int, booked: int = 0) -> None:
        self._check_number(client, number)

    patch.setattr(TaskTokens, "redeem", forgetful)


def told_before_saved(patch: pytest.MonkeyPatch) -> None:
    """Other servers are told what a crash takes back."""
    post = Outbox.post

    def hasty(self: Outbox, message: Any) -> None:
        post(self, message)
        self.committed = self.last

    patch.setattr(Outbox, "post", hasty)
    rest = Node._perform

    def and_sends(self: Node, actions: Any) -> None:
        rest(self, actions)
        self._effects += [SendPeer(j) for j, box in self.outboxes.items() if box.last > box.acked]

    patch.setattr(Node, "_perform", and_sends)


def acknowledged_before_saved(patch: pytest.MonkeyPatch) -> None:
    """The sender of a message is told to forget it when it was handled, not when that is on the disk."""
    finish = STEPS[Handled]

    def hasty(self: Node, event: Handled) -> None:
        entry = self.next_entry
        finish(self, event)
        if entry.peer:
            self._effects.append(AcknowledgePeer(entry.sender, entry.number))

    steps: dict[Any, Any] = STEPS
    patch.setitem(steps, Handled, hasty)


def no_fencing(patch: pytest.MonkeyPatch) -> None:
    """A process that is told to stop goes on."""
    patch.setattr(Membership, "fence", lambda self, why: None)


def half_is_enough(patch: pytest.MonkeyPatch) -> None:
    """Half of the voters are taken for a majority."""

    def generous(self: View, servers: Any) -> bool:
        voters = self.voters
        return 2 * len(set(servers).intersection(voters)) >= len(voters) - 1

    patch.setattr(View, "majority", generous)


def no_leases(patch: pytest.MonkeyPatch) -> None:
    """Whoever has a token uses it, also when a majority may have given it up."""
    patch.setattr(Membership, "may_lead", lambda self, now=None: True)


def untrained_newcomer(patch: pytest.MonkeyPatch) -> None:
    """A server that joins begins with the first weights, and pushes them into the others."""
    for kind in (Server, Spyker):
        patch.setattr(kind, "bootstrap_from", lambda self, bootstrap: None)


def suspicion_for_ever(patch: pytest.MonkeyPatch) -> None:
    """Who was out of reach once is never waited for again."""
    look = Membership.update_suspects

    def resentful(self: Membership) -> None:
        before = self.suspected
        look(self)
        self.suspected = (self.suspected | before) & frozenset(self.others)

    patch.setattr(Membership, "update_suspects", resentful)


def outboxes_keep_everything(patch: pytest.MonkeyPatch) -> None:
    """What a newer message makes void is kept for whoever is away."""

    def hoarding(self: Outbox, message: Any) -> None:
        self.last += 1
        self.entries.append(OutboxEntry(self.last, message))

    patch.setattr(Outbox, "post", hoarding)


def late_greetings_are_old_states(patch: pytest.MonkeyPatch) -> None:
    """Who has saved while its greeting was on its way is taken for one that was rolled back."""
    recognise = Membership.authenticate

    def suspicious(self: Membership, who: Any, expected: int | None = None) -> None:
        self.met_processes.pop(who.server, None)
        recognise(self, who, expected)

    patch.setattr(Membership, "authenticate", suspicious)


def forgotten_when_received(patch: pytest.MonkeyPatch) -> None:
    """A client drops its update when the next task arrives, although the server has not saved it."""
    replace = PendingUpdates.superseded

    def hasty(self: PendingUpdates, saved: int) -> None:
        replace(self, saved)
        self._keep(lambda task: False)

    patch.setattr(PendingUpdates, "superseded", hasty)


def applied_is_called_saved(patch: pytest.MonkeyPatch) -> None:
    """A server tells clients that their updates are on disk when they are in memory."""
    handled = TaskTokens.handled

    def hasty(self: TaskTokens, client: int, number: int, booked: int = 0) -> int:
        self.entry(client).saved = number
        return handled(self, client, number, booked)

    patch.setattr(TaskTokens, "handled", hasty)


def kept_updates_are_new(patch: pytest.MonkeyPatch) -> None:
    """A server asks for all updates that a client keeps, also for those that it has."""
    hold = TaskTokens.hold

    def greedy(self: TaskTokens, client: int, tokens: Any) -> Any:
        entry, tokens = self.entry(client), tuple(tokens)
        entry.taken = min((CONTENT.unpack(token[: CONTENT.size])[0] - 1 for token in tokens), default=entry.taken)
        return hold(self, client, tokens)

    patch.setattr(TaskTokens, "hold", greedy)


def saved_before_synced(patch: pytest.MonkeyPatch) -> None:
    """A checkpoint counts as saved when it is visible, and a power cut undoes it."""
    finish = SimProcess._sync

    def hasty(self: SimProcess) -> None:
        with pytest.MonkeyPatch.context() as unsynced:
            unsynced.setattr(self.disk, "sync", lambda: None)
            finish(self)

    patch.setattr(SimProcess, "_sync", hasty)


def lists_are_believed(patch: pytest.MonkeyPatch) -> None:
    """A list of members needs no signatures."""
    patch.setattr(ViewChain, "_check", lambda self, known, proof, lineages: None)


def lists_come_before_members(patch: pytest.MonkeyPatch) -> None:
    """Whoever calls is believed first, and looked up in the list afterwards."""
    look_up = Membership._admissible

    def trusting(self: Membership, who: Any) -> Any:
        newer = [proof for proof in who.proofs if proof.view.epoch > self.view.epoch]
        if newer:
            self._adopt(newer)
        return look_up(self, who)

    patch.setattr(Membership, "_admissible", trusting)


def epochs_are_skipped(patch: pytest.MonkeyPatch) -> None:
    """A list may follow from one that nobody here knows."""
    check = ViewChain._check
    patch.setattr(
        ViewChain, "_check", lambda self, known, proof, lineages: check(self, proof.previous, proof, lineages)
    )


def reports_are_believed(patch: pytest.MonkeyPatch) -> None:
    """Anybody may report a later process of somebody else."""
    patch.setattr(Announcement, "genuine", lambda self, keys: True)


def rejections_are_believed(patch: pytest.MonkeyPatch) -> None:
    """Who is told that it is not a member stops."""
    patch.setattr(Membership, "refused", lambda self, server, lineage, rejection: self.fence(str(rejection)))


def every_claim_counts(patch: pytest.MonkeyPatch) -> None:
    """A client has as much weight as it claims."""
    patch.setattr(ClaimedSizes, "bounded", lambda self, client: int(self.clients.get(client, 1)))


def every_update_counts(patch: pytest.MonkeyPatch) -> None:
    """A client may send as many updates as it likes."""
    patch.setattr(UpdateRates, "admits", lambda self, client: True)


def full_disks_are_waited_for(patch: pytest.MonkeyPatch) -> None:
    """Other servers wait for one that says that it cannot save."""
    patch.setattr(FailureDetector, "cannot_save", lambda self, members: frozenset())


def full_disks_are_kept_quiet(patch: pytest.MonkeyPatch) -> None:
    """A server that cannot save says that all is well, and that it has the token."""
    patch.setattr(SaveMonitor, "cannot_save", lambda self, now=None: False)


class Bug(NamedTuple):
    """What is broken, a seed that shows it, and what is found."""

    plant: Callable[[pytest.MonkeyPatch], None]
    seed: int
    found: str


TWO_TOKENS, GIVES_UP = "have a token and may use it", "must give up a state that nobody has tampered with"
STOPPED, LOST = "was stopped by what somebody said", "is lost"
BUGS = [
    Bug(token_without_a_vote, 619, "both had the token for exchange"),
    Bug(tokens_of_any_epoch, 8, TWO_TOKENS),
    Bug(answers_are_not_remembered, 13, "handles an answer twice"),
    Bug(told_before_saved, 84, GIVES_UP),
    Bug(acknowledged_before_saved, 47, GIVES_UP),
    Bug(no_fencing, 8, "runs that should have stopped"),
    Bug(half_is_enough, 7, "two lists of servers"),
    Bug(no_leases, 2, TWO_TOKENS),
    Bug(untrained_newcomer, 2, "began with a model of age 0.0"),
    Bug(suspicion_for_ever, 1, "still suspects"),
    Bug(outboxes_keep_everything, 2, "messages for server"),
    Bug(late_greetings_are_old_states, 2, GIVES_UP),
    Bug(forgotten_when_received, 3, LOST),
    Bug(applied_is_called_saved, 3, LOST),
    Bug(kept_updates_are_new, 14, "handles an answer twice"),
    Bug(saved_before_synced, 50, "saved version"),
    Bug(lists_are_believed, 4, STOPPED),
    Bug(lists_come_before_members, 9, STOPPED),
    Bug(epochs_are_skipped, 8, STOPPED),
    Bug(reports_are_believed, 6, STOPPED),
    Bug(rejections_are_believed, 6, STOPPED),
    Bug(every_claim_counts, 5, "counts for 2,147,483,648 examples"),
    Bug(every_update_counts, 15, "were applied at server"),
    Bug(full_disks_are_waited_for, 14, "the last exchange began at"),
    Bug(full_disks_are_kept_quiet, 14, "the last exchange began at"),
]
