"""Deliberately broken servers. Each bug is a plausible mistake, and a campaign must find it.

``BUGS`` has, for each, the function that patches the code, a seed that shows it quickly, and part of the violation.
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
    """A server that misses the token creates one without a vote."""
    propose = Membership._propose

    def hasty(self: Membership, wish: Any, pause: float) -> None:
        if wish.why == RENEW:
            unsigned = ViewProof(self.view.following(self.id), self.view)
            self._adopt([unsigned])
        else:
            propose(self, wish, pause)

    patch.setattr(Membership, "_propose", hasty)


def tokens_of_any_epoch(patch: pytest.MonkeyPatch) -> None:
    """A server accepts a token of an earlier epoch."""
    take = Spyker.rcv_token

    def gullible(self: Spyker, token: Any) -> None:
        take(self, token if token.epoch == self.epoch else type(token)(self.epoch, token.bid, tuple(self.ages)))

    patch.setattr(Spyker, "rcv_token", gullible)


def updates_are_applied_again(patch: pytest.MonkeyPatch) -> None:
    """An update that is sent again after a broken connection is applied again."""

    def forgetful(self: TaskTokens, client: int, number: int, booked: int = 0) -> None:
        self._check_number(client, number)

    patch.setattr(TaskTokens, "redeem", forgetful)


def sent_before_saved(patch: pytest.MonkeyPatch) -> None:
    """Messages to other servers are sent before a checkpoint holds them."""
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
    """A message is acknowledged when it is handled, not when a checkpoint holds its effects."""
    finish = STEPS[Handled]

    def hasty(self: Node, event: Handled) -> None:
        entry = self.next_entry
        finish(self, event)
        if entry.peer:
            self._effects.append(AcknowledgePeer(entry.sender, entry.number))

    steps: dict[Any, Any] = STEPS
    patch.setitem(steps, Handled, hasty)


def no_fencing(patch: pytest.MonkeyPatch) -> None:
    """A fenced process continues."""
    patch.setattr(Membership, "fence", lambda self, why: None)


def half_is_enough(patch: pytest.MonkeyPatch) -> None:
    """Half of the voters count as a majority."""

    def generous(self: View, servers: Any) -> bool:
        voters = self.voters
        return 2 * len(set(servers).intersection(voters)) >= len(voters) - 1

    patch.setattr(View, "majority", generous)


def no_leases(patch: pytest.MonkeyPatch) -> None:
    """The holder of a token uses it without a lease."""
    patch.setattr(Membership, "may_lead", lambda self, now=None: True)


def untrained_newcomer(patch: pytest.MonkeyPatch) -> None:
    """A server that joins starts from the initial weights, and sends them to the others."""
    for kind in (Server, Spyker):
        patch.setattr(kind, "bootstrap_from", lambda self, bootstrap: None)


def permanent_suspicion(patch: pytest.MonkeyPatch) -> None:
    """A server that was suspected once is suspected until the end."""
    look = Membership.update_suspects

    def resentful(self: Membership) -> None:
        before = self.suspected
        look(self)
        self.suspected = (self.suspected | before) & frozenset(self.others)

    patch.setattr(Membership, "update_suspects", resentful)


def outboxes_keep_everything(patch: pytest.MonkeyPatch) -> None:
    """An outbox keeps messages that a newer one replaces."""

    def hoarding(self: Outbox, message: Any) -> None:
        self.last += 1
        self.entries.append(OutboxEntry(self.last, message))

    patch.setattr(Outbox, "post", hoarding)


def late_handshakes_are_rollbacks(patch: pytest.MonkeyPatch) -> None:
    """A server that saved while its handshake was in flight counts as rolled back."""
    recognise = Membership.authenticate

    def suspicious(self: Membership, who: Any, expected: int | None = None) -> None:
        self.met_processes.pop(who.server, None)
        recognise(self, who, expected)

    patch.setattr(Membership, "authenticate", suspicious)


def dropped_when_superseded(patch: pytest.MonkeyPatch) -> None:
    """A client drops its update when the next task arrives, although the server has not saved it."""
    replace = PendingUpdates.superseded

    def hasty(self: PendingUpdates, saved: int) -> None:
        replace(self, saved)
        self._keep(lambda task: False)

    patch.setattr(PendingUpdates, "superseded", hasty)


def applied_reported_as_saved(patch: pytest.MonkeyPatch) -> None:
    """A server reports updates as saved when they are in memory only."""
    handled = TaskTokens.handled

    def hasty(self: TaskTokens, client: int, number: int, booked: int = 0) -> int:
        self.entry(client).saved = number
        return handled(self, client, number, booked)

    patch.setattr(TaskTokens, "handled", hasty)


def kept_updates_requested_again(patch: pytest.MonkeyPatch) -> None:
    """A server asks for all updates that a client keeps, including those that it has."""
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


def unsigned_views(patch: pytest.MonkeyPatch) -> None:
    """A view needs no signatures."""
    patch.setattr(ViewChain, "_check", lambda self, known, proof, lineages: None)


def views_of_strangers(patch: pytest.MonkeyPatch) -> None:
    """A handshake's view is adopted before its sender is checked."""
    look_up = Membership._admissible

    def trusting(self: Membership, who: Any) -> Any:
        newer = [proof for proof in who.proofs if proof.view.epoch > self.view.epoch]
        if newer:
            self._adopt(newer)
        return look_up(self, who)

    patch.setattr(Membership, "_admissible", trusting)


def skipped_epochs(patch: pytest.MonkeyPatch) -> None:
    """A proof may start from a view that this server does not know."""
    check = ViewChain._check
    patch.setattr(
        ViewChain, "_check", lambda self, known, proof, lineages: check(self, proof.previous, proof, lineages)
    )


def unsigned_reports(patch: pytest.MonkeyPatch) -> None:
    """A report of a later process of a server needs no signature."""
    patch.setattr(Announcement, "genuine", lambda self, keys: True)


def unproven_rejections(patch: pytest.MonkeyPatch) -> None:
    """A server stops when another one rejects it, without proof."""
    patch.setattr(Membership, "refused", lambda self, server, lineage, rejection: self.fence(str(rejection)))


def unbounded_sizes(patch: pytest.MonkeyPatch) -> None:
    """A client's claimed size is not bounded."""
    patch.setattr(ClaimedSizes, "bounded", lambda self, client: int(self.clients.get(client, 1)))


def unbounded_rates(patch: pytest.MonkeyPatch) -> None:
    """The rate of a client's updates is not bounded."""
    patch.setattr(UpdateRates, "admits", lambda self, client: True)


def waiting_for_full_disks(patch: pytest.MonkeyPatch) -> None:
    """Other servers wait for a server that reports that it cannot save."""
    patch.setattr(FailureDetector, "cannot_save", lambda self, members: frozenset())


def unreported_full_disks(patch: pytest.MonkeyPatch) -> None:
    """A server that cannot save does not report it, and claims the token."""
    patch.setattr(SaveMonitor, "cannot_save", lambda self, now=None: False)


class Bug(NamedTuple):
    """The patch, a seed that shows the bug, and part of the violation."""

    plant: Callable[[pytest.MonkeyPatch], None]
    seed: int
    found: str


TWO_TOKENS, GIVES_UP = "have a token and may use it", "must drop a state that was not tampered with"
STOPPED, LOST = "was stopped by a message of another", "is lost"
BUGS = [
    Bug(token_without_a_vote, 619, "both had the token for exchange"),
    Bug(tokens_of_any_epoch, 8, TWO_TOKENS),
    Bug(updates_are_applied_again, 13, "handles an update twice"),
    Bug(sent_before_saved, 84, GIVES_UP),
    Bug(acknowledged_before_saved, 47, GIVES_UP),
    Bug(no_fencing, 8, "runs that should have stopped"),
    Bug(half_is_enough, 7, "two views"),
    Bug(no_leases, 2, TWO_TOKENS),
    Bug(untrained_newcomer, 2, "began with a model of age 0.0"),
    Bug(permanent_suspicion, 1, "still suspects"),
    Bug(outboxes_keep_everything, 2, "messages for server"),
    Bug(late_handshakes_are_rollbacks, 2, GIVES_UP),
    Bug(dropped_when_superseded, 3, LOST),
    Bug(applied_reported_as_saved, 3, LOST),
    Bug(kept_updates_requested_again, 14, "handles an update twice"),
    Bug(saved_before_synced, 50, "saved version"),
    Bug(unsigned_views, 4, STOPPED),
    Bug(views_of_strangers, 9, STOPPED),
    Bug(skipped_epochs, 8, STOPPED),
    Bug(unsigned_reports, 6, STOPPED),
    Bug(unproven_rejections, 6, STOPPED),
    Bug(unbounded_sizes, 5, "counts for 2,147,483,648 examples"),
    Bug(unbounded_rates, 15, "were applied at server"),
    Bug(waiting_for_full_disks, 14, "the last exchange began at"),
    Bug(unreported_full_disks, 14, "the last exchange began at"),
]
