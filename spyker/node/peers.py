"""The other servers as one node sees them: handshakes, messages, control messages and membership changes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from spyker.node.client_presence import ClientPresence
from spyker.node.control_messages import BootstrapRequest, ControlMessage, Heartbeat, PeerHandshake
from spyker.node.effects import (
    AcknowledgePeer,
    Completed,
    Effect,
    MembershipChanged,
    SendControl,
    SendPeer,
    StopProcess,
    WriteFact,
)
from spyker.node.events import (
    ControlReceived,
    PeerConnected,
    PeerHelloReceived,
    PeerMessageReceived,
    PeerPortClosed,
    RejectedByPeer,
)
from spyker.node.identity_alerts import COPIED_STATE, IdentityAlerts
from spyker.node.inbox import ASK, AWAY, BOOTSTRAP, HEARTBEAT, SUSPECTS, VIEW, Inbox, NodeOptions, QueuedEvent
from spyker.node.membership import Membership
from spyker.node.outbox import Outbox, OutdatedState
from spyker.node.rejection import Rejection
from spyker.node.views import ANYBODY, NOBODY, View
from spyker.protocol.codec import Array
from spyker.protocol.facts import EpochStarted, Fact, PeerSuspected, PeerTrusted, SavingFailed, SavingResumed
from spyker.protocol.messages import (
    Action,
    BootstrapState,
    Leave,
    PeerMessage,
    RecordFact,
    StartTimer,
    StopTimer,
    ToServer,
)
from spyker.protocol.server import Server
from spyker.protocol.state import Unpacker


class PeerMarks(NamedTuple):
    """What a checkpoint that is being written holds."""

    outboxes: dict[int, tuple[Outbox, int]]
    """Per peer, its outbox and the last number in it."""
    handled: dict[int, int]
    control: list[tuple[int, ControlMessage]]
    """Control messages that may be sent once the checkpoint is saved."""


class NodePeers:
    """Owns the state that concerns other servers. The node passes events on and is called back twice.

    It shares the node's inbox and its list of effects, so that entries and effects stay in order.
    """

    def __init__(
        self,
        options: NodeOptions,
        membership: Membership,
        inbox: Inbox,
        effects: list[Effect],
        clients: ClientPresence,
        alerts: IdentityAlerts,
        *,
        start: Callable[[BootstrapState], None],
        save: Callable[[], None],
    ) -> None:
        """``start`` starts the server with a bootstrap state; ``save`` takes a checkpoint as soon as possible."""
        self.membership = membership
        self.outboxes = {j: Outbox() for j in membership.others}
        self.received: dict[int, int] = {}  # per peer, the number of the last message that waits or was handled
        self.acknowledged: dict[int, int] = {}  # per peer, the number up to which a checkpoint holds its effects
        self.handled: dict[int, int] = {}  # per peer, the number of the last message that was handled
        self.stopped = False  # the process must end
        self._id, self._options, self._inbox, self._effects = membership.id, options, inbox, effects
        self._clients, self._alerts = clients, alerts
        self._start, self._save = start, save
        self._server: Server | None = None  # not before it has started
        self._control: list[tuple[int, ControlMessage]] = []  # to be sent once the state is saved
        self._suspected: frozenset[int] = frozenset()  # as the run record says
        self._absent: frozenset[int] = frozenset()  # as the server knows
        self._cannot_save = False  # as the run record says
        self._requests: set[int] = set()  # servers that asked for a bootstrap state
        self._asked = 0  # how often this server has asked for one

    @property
    def view(self) -> View:
        """The present membership."""
        return self.membership.view

    # --- Starting ----------------------------------------------------------------------------------------------------

    def started(self, server: Server, bootstrap: BootstrapState | None) -> list[Action]:
        """Tell a server that starts what is known of its peers, and give it the bootstrap state if there is one."""
        self._server, view = server, self.view
        self.membership.failure_detector.saw_token(view.epoch)  # nobody misses it before a server uses it
        actions: list[Action] = []
        if view.epoch > 0:
            leads = bootstrap is None and view.leader == self._id
            actions += server.reform(view.epoch, view.ring, leads=leads)
        if bootstrap is not None:
            server.bootstrap_from(bootstrap)
        self._suspected = self.membership.suspected | self.membership.cannot_save
        actions += [RecordFact(PeerSuspected(self._id, j)) for j in sorted(self._suspected)]
        self._absent = self._suspected
        if self._absent:
            actions += server.suspect(self._absent)
        return actions

    def start_heartbeats(self) -> None:
        """Start the heartbeat timer, if there are other servers."""
        if self._options.heartbeat_interval > 0 and len(self.view.members) > 1:
            self._effects.append(StartTimer(HEARTBEAT, self._options.heartbeat_interval))

    # --- Connections -------------------------------------------------------------------------------------------------

    def handshake(self, server: int) -> PeerHandshake:
        """Return what this server says of itself to another."""
        box = self.outboxes.get(server)
        return self.membership.greeting(server, 0 if box is None else box.acked)

    def hello(self, event: PeerHelloReceived) -> None:
        """Check another server that has called, or raise a rejection."""
        who, options = event.handshake, self._options
        if event.layout != options.layout or event.deployment != options.deployment:
            raise Rejection("mismatch", "the scenarios of the servers differ; use the same one everywhere")
        self._authenticate(who)
        received = self.received.get(who.server, 0)
        behind = not who.new and who.epoch < self.view.epoch  # it may mean a former member
        if who.acked > received and not behind:
            self._outdated(
                f"server {who.server} knows that message {who.acked} was saved here, and {received} is the last"
            )

    def connected(self, event: PeerConnected) -> None:
        """Check another server that has accepted a call, or raise a rejection."""
        self._authenticate(event.handshake, event.server)
        try:
            self.outboxes[event.server].check_received(event.server, event.received)
        except OutdatedState as rejection:
            self._outdated(rejection.detail)
        self.membership.met(event.handshake, event.called_at)
        self.apply_membership()

    def _authenticate(self, who: PeerHandshake, expected: int | None = None) -> None:
        try:
            self.membership.authenticate(who, expected)
        except Rejection as rejection:
            self._record(*self._alerts_for(who, rejection))
            raise
        finally:
            self.apply_membership()

    def _alerts_for(self, who: PeerHandshake, rejection: Rejection) -> Sequence[Fact]:
        """Return the facts that follow from a rejected call: the caller may be a second process of a server."""
        membership, j = self.membership, who.server
        if rejection.reason == "duplicate":
            return self._alerts.duplicated(j, COPIED_STATE)
        known = membership.known_lineage(j)
        if rejection.reason == "lineage" and known not in (ANYBODY, NOBODY, who.lineage):
            return self._alerts.claimed(j, known, membership.failure_detector.listened(j))
        return ()

    def _outdated(self, why: str) -> None:
        self.membership.outdated = f"outdated: {why}"
        self.apply_membership()
        raise Rejection("outdated", why)

    def rejected(self, event: RejectedByPeer) -> None:
        """React to the rejection of a call by another server."""
        rejection = Rejection(event.reason, event.detail, event.evidence)
        self.membership.refused(event.server, event.lineage, rejection)
        self.apply_membership()

    def port_closed(self, event: PeerPortClosed) -> None:
        """Do not wait for a server at whose address nobody listens any more."""
        self.membership.failure_detector.port_closed(event.server, event.called_at)
        self.apply_membership()

    # --- Messages ----------------------------------------------------------------------------------------------------

    def post(self, server: int, message: PeerMessage) -> bool:
        """Put a message into an outbox; return False if there is no such member."""
        if server not in self.outboxes:
            return False
        self.outboxes[server].post(message)
        return True

    def acknowledge(self, server: int, sequence: int) -> None:
        """Drop messages that another server has saved the effects of."""
        if server in self.outboxes:
            self.outboxes[server].acknowledge(sequence)

    def receive(self, event: PeerMessageReceived) -> None:
        """Queue a message, drop it if it is a duplicate, or raise a rejection."""
        server, sequence, message, receipt = event.server, event.sequence, event.message, event.receipt
        if event.epoch > self.view.epoch:
            raise Rejection(
                "epoch", f"server {server} is in epoch {event.epoch}, and this one in {self.view.epoch}; greet again"
            )
        if sequence <= self.received.get(server, 0) or server not in self.outboxes:
            self._complete(receipt)
            return
        self.received[server] = sequence
        lineage = self.membership.lineages.get(server, "")
        if isinstance(message, BootstrapState):
            if self._server is None:
                self.handled[server] = sequence
                self._start(message)
            else:
                self._inbox.append(QueuedEvent(server, number=sequence, peer=True, lineage=lineage))
            self._complete(receipt)
            return
        if self._server is None:
            self._complete(receipt)  # otherwise the sender would wait, and a bootstrap state could not follow
            receipt = None
            if message.latest_only:
                self._inbox.remove_messages(server, type(message))
        self._inbox.append(QueuedEvent(server, message, sequence, peer=True, receipt=receipt, lineage=lineage))

    def _complete(self, receipt: Any) -> None:
        if receipt is not None:
            self._effects.append(Completed(receipt))

    def note_handled(self, entry: QueuedEvent) -> None:
        """Note that a peer's message was handled, unless the peer has been replaced meanwhile."""
        if entry.sender in self.outboxes and entry.lineage == self.membership.lineages.get(entry.sender, ""):
            self.handled[entry.sender] = entry.number

    # --- Control messages --------------------------------------------------------------------------------------------

    def receive_control(self, event: ControlReceived) -> None:
        """React to a control message."""
        if isinstance(event.message, BootstrapRequest):
            if self._server is not None and event.server in self.outboxes:
                self._requests.add(event.server)
                self._inbox.append(QueuedEvent(self._id, change=BOOTSTRAP))
            return
        self.membership.receive(event.server, event.message, saves=self._server is not None)
        if isinstance(event.message, Heartbeat) and event.server in self.outboxes:
            for client in self._clients.elsewhere(event.message):
                self._record(*self._alerts.elsewhere(client, event.server))
            for client in self._clients.moved(event.message):
                self._effects.append(StopTimer(f"{AWAY}{client}"))
                if self._server is not None:
                    self._inbox.append(QueuedEvent(client, Leave()))
        self.apply_membership()

    def heartbeat(self) -> None:
        """Send heartbeats, update the suspects, and propose a membership change if one is due."""
        self._effects.append(StartTimer(HEARTBEAT, self._options.heartbeat_interval))
        server = self._server
        if server is not None and server.epoch != self.view.epoch:
            server = None  # it has not learnt of this epoch yet
        has_token = server is not None and (server.has_token or self._token_on_its_way())
        clients = self._clients.sightings()
        for j, beat in self.membership.beat(has_token=has_token):
            self._effects.append(SendControl(j, replace(beat, clients=clients) if clients else beat))
        self.membership.update_suspects()
        if server is not None:
            self.membership.propose_if_needed(uses_token=type(server).uses_token)
        self.apply_membership()

    def _token_on_its_way(self) -> bool:
        """Return whether the token waits behind other messages for a server that is there."""
        return any(box.has_token for j, box in self.outboxes.items() if j not in self._absent)

    def request_bootstrap(self) -> None:
        """Ask the nearest of the other servers for a bootstrap state, and after five attempts the next one."""
        if self._server is None:
            self._effects.append(StartTimer(ASK, self._options.heartbeat_interval or 1.0))
            membership = self.membership
            absent = membership.suspected | membership.cannot_save
            met = [j for j in membership.others if j in membership.lineages and j not in absent]
            met.sort(key=lambda j: membership.failure_detector.away.get(j, math.inf))
            if met and not membership.new:
                self._effects.append(SendControl(met[self._asked // 5 % len(met)], BootstrapRequest()))
                self._asked += 1

    # --- Membership --------------------------------------------------------------------------------------------------

    def apply_membership(self) -> None:
        """Do what follows from the present membership, suspects and votes."""
        membership = self.membership
        for before, after in membership.adopted:
            self._change_members(before, after)
        membership.adopted.clear()
        if self._server is not None:
            self._update_absent()
        at_once, later = membership.take_outgoing()
        self._effects += [SendControl(j, message) for j, message in at_once]
        self._control += later
        if (membership.fenced or membership.outdated) and not self.stopped:
            self.stopped = True
            if membership.duplicated:
                self._record(*self._alerts.duplicated(self._id, COPIED_STATE))
            self._effects.append(StopProcess(membership.fenced or membership.outdated, restart=not membership.fenced))
        if membership.paxos.changed and self._server is not None:
            self._save()

    def _update_absent(self) -> None:
        """Record which servers are suspected, have ended or cannot save, and tell the server not to wait for them.

        A server that cannot save itself sends nothing, so it waits for nobody.
        """
        membership = self.membership
        cannot_save = membership.save_monitor.cannot_save()
        if cannot_save != self._cannot_save:
            self._cannot_save = cannot_save
            self._record(SavingFailed(self._id) if cannot_save else SavingResumed(self._id))
        ended = membership.failure_detector.ended(membership.others)
        suspected = membership.suspected | membership.cannot_save | ended
        for j in sorted(suspected - self._suspected):
            self._record(PeerSuspected(self._id, j))
        for j in sorted(self._suspected - suspected):
            self._record(PeerTrusted(self._id, j))
        self._suspected = suspected
        absent = frozenset(membership.others) if cannot_save else suspected
        if absent != self._absent:
            self._absent = absent
            self._inbox.append(QueuedEvent(self._id, change=SUSPECTS))

    def _record(self, *facts: Fact) -> None:
        self._effects += [WriteFact(fact, len(self._inbox)) for fact in facts]

    def _change_members(self, before: View, after: View) -> None:
        """Drop what concerns former members, and members that were replaced, and make outboxes for new ones."""
        same = {
            j for j in before.members if before.members[j].lineage == getattr(after.members.get(j), "lineage", None)
        }
        for j in [j for j in self.outboxes if j not in same]:
            del self.outboxes[j]
            for known in (self.received, self.acknowledged, self.handled):
                known.pop(j, None)
        for j in self.membership.others:
            self.outboxes.setdefault(j, Outbox())
        self._requests &= self.outboxes.keys()
        strangers = frozenset(before.members.keys() - same)
        self._inbox.remove_senders(strangers)
        self._effects.append(MembershipChanged(after, strangers))
        if self._server is not None:
            self._inbox.append(QueuedEvent(self._id, change=VIEW))

    def prepare(self, change: str) -> Callable[[], list[Action]]:
        """Return a function that tells the server of a change. It uses the state as it is now, also in a thread."""
        server, view, absent = self._server, self.view, self._absent
        assert server is not None
        if change == SUSPECTS:
            return lambda: server.suspect(absent)
        if change == BOOTSTRAP:
            requests, self._requests = sorted(self._requests), set()
            return lambda: [ToServer(j, server.bootstrap_state()) for j in requests]
        if view.epoch == server.epoch or self._id not in view.members:
            return list
        started = RecordFact(EpochStarted(self._id, view.epoch, list(view.members)))
        return lambda: [started, *server.reform(view.epoch, view.ring, leads=view.leader == self._id)]

    # --- Checkpoints -------------------------------------------------------------------------------------------------

    def begin_checkpoint(self) -> PeerMarks:
        """Return what the checkpoint that is taken now holds."""
        self.membership.save_monitor.began()
        control, self._control = self._control, []
        return PeerMarks({j: (box, box.last) for j, box in self.outboxes.items()}, dict(self.handled), control)

    def numbers(self, vectors: dict[str, Array]) -> dict[str, Any]:
        """Return the state for a checkpoint; arrays go into ``vectors``."""
        return {
            "outboxes": {str(j): box.numbers(f"outbox-{j}", vectors) for j, box in self.outboxes.items()},
            "handled": {str(j): sequence for j, sequence in self.handled.items()},
            "membership": self.membership.numbers(),
        }

    def checkpoint_saved(self, marks: PeerMarks) -> None:
        """Send what the checkpoint holds, and acknowledge what it has the effects of."""
        self.membership.saved = self.membership.saves
        self.membership.save_monitor.saved()
        for j, (box, sequence) in marks.outboxes.items():
            if self.outboxes.get(j) is box and box.commit(sequence):
                self._effects.append(SendPeer(j))
        for j, sequence in marks.handled.items():
            if self.handled.get(j, 0) >= sequence > self.acknowledged.get(j, 0):
                self._effects.append(AcknowledgePeer(j, sequence))
                self.acknowledged[j] = sequence
        self._effects += [SendControl(j, message) for j, message in marks.control]
        if self._cannot_save:
            self.apply_membership()

    def checkpoint_failed(self, marks: PeerMarks) -> None:
        """Keep control messages for the next checkpoint."""
        self._control = [*marks.control, *self._control]
        self.membership.save_monitor.failed()

    def restore_membership(self, numbers: Mapping[str, Any]) -> None:
        """Restore the membership from a checkpoint, before the server is built."""
        self.membership.restore(numbers["membership"])
        self.outboxes = {j: Outbox() for j in self.membership.others}

    def restore(self, numbers: Mapping[str, Any], server: Server, saved: Unpacker) -> None:
        """Restore the rest, for a server that was restored."""
        self._server = server
        for j, box in numbers["outboxes"].items():
            self.outboxes[int(j)].restore(box, saved)
        self.handled = {int(j): sequence for j, sequence in numbers["handled"].items()}
        self.received, self.acknowledged = dict(self.handled), dict(self.handled)
