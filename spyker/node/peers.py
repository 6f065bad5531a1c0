"""What a node does with other servers: it greets and recognises them, hears them, and goes on when they change."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque
from typing import Any

from spyker.node.control_messages import BootstrapRequest, ControlMessage, PeerHandshake
from spyker.node.effects import Completed, Effect, MembershipChanged, SendControl, StopProcess, WriteFact
from spyker.node.inbox import ASK, BEAT, GIFT, SUSPECTS, VIEW, NodeOptions, QueuedEvent
from spyker.node.membership import Membership
from spyker.node.outbox import Outbox, OutboxEntry, OutdatedState
from spyker.node.rejection import Rejection
from spyker.node.views import View
from spyker.protocol.facts import EpochStarted, PeerSuspected, PeerTrusted
from spyker.protocol.messages import Action, BootstrapState, PeerMessage, RecordFact, StartTimer, ToServer
from spyker.protocol.server import Server


class NodePeers(ABC):
    """The side of a :class:`~spyker.node.node.Node` that looks at other servers. The attributes are the node's."""

    id: int
    rules: NodeOptions
    membership: Membership
    server: Server | None
    outboxes: dict[int, Outbox]
    received: dict[int, int]
    acknowledged: dict[int, int]
    computing: bool
    _handled: dict[int, int]
    _queue: deque[QueuedEvent]
    _effects: list[Effect]
    _control_messages: list[tuple[int, ControlMessage]]
    _suspected: frozenset[int]
    _askers: set[int]
    _asked: int
    _stopped: bool
    _changed: bool
    _wanted: bool

    @property
    def view(self) -> View:
        """The servers now."""
        return self.membership.view

    @abstractmethod
    def _start(self, gift: BootstrapState | None = None) -> None:
        """Begin, with what another server gave."""

    @abstractmethod
    def _rest(self) -> None:
        """Between two messages: is it time for a checkpoint?"""

    def handshake(self, server: int) -> PeerHandshake:
        """What this server says first to another."""
        box = self.outboxes.get(server)
        return self.membership.greeting(0 if box is None else box.acked)

    def admit_peer(self, who: PeerHandshake, layout: bytes, deployment: bytes) -> int:
        """Refuse another server, or return the number of the last message that it need not repeat."""
        if layout != self.rules.layout or deployment != self.rules.deployment:
            raise Rejection("agreement", "the scenarios of the servers differ; use the same one everywhere")
        self._authenticate(who)
        received = self.received.get(who.server, 0)
        behind = who.view is not None and who.view.epoch < self.view.epoch  # and may speak of who was here before
        if who.acked > received and not behind:
            self._outdated(
                f"server {who.server} knows that message {who.acked} was saved here, and {received} is the last"
            )
        return received

    def peer_connected(self, server: int, who: PeerHandshake, received: int, at: float) -> None:
        """Another server answered a call of this one at this time: refuse whoever should not, or go on from there."""
        self._authenticate(who, server)
        try:
            self.outboxes[server].connected(server, received)
        except OutdatedState as rejection:
            self._outdated(str(rejection).removeprefix("outdated: "))
        self.membership.met(who, at)
        self.apply_membership()

    def _authenticate(self, who: PeerHandshake, expected: int | None = None) -> None:
        try:
            self.membership.authenticate(who, expected)
        finally:
            self.apply_membership()

    def _outdated(self, why: str) -> None:
        self.membership.outdated = f"outdated: {why}"
        self.apply_membership()
        raise Rejection("outdated", why)

    def peer_rejected(self, server: int, rejection: Rejection) -> None:
        """Another server refused this one."""
        self.membership.refused(rejection)
        self.apply_membership()

    def receive_peer(
        self, server: int, sequence: int, message: PeerMessage, receipt: Any = None, epoch: int = 0
    ) -> None:
        """A message of another server has arrived in full. It may be one that came before a connection broke."""
        if epoch > self.view.epoch:
            raise Rejection(
                "epoch", f"server {server} is in epoch {epoch}, and this one in {self.view.epoch}; greet again"
            )
        if sequence <= self.received.get(server, 0) or server not in self.outboxes:
            if receipt is not None:
                self._effects.append(Completed(receipt))
            return
        self.received[server] = sequence
        lineage = self.membership.lineages.get(server, "")
        if isinstance(message, BootstrapState):
            self._take_bootstrap(server, sequence, message)
            if receipt is not None:
                self._effects.append(Completed(receipt))
            return
        if self.server is None and receipt is not None:  # whoever waited would not hear what else it is told: a gift
            self._effects.append(Completed(receipt))
            receipt = None
        if self.server is None and message.latest_only:
            kind = type(message)
            self._queue = deque(
                a for a in self._queue if not (a.peer and a.sender == server and type(a.message) is kind)
            )
        self._queue.append(QueuedEvent(server, message, sequence, peer=True, receipt=receipt, lineage=lineage))

    def _take_bootstrap(self, server: int, sequence: int, gift: BootstrapState) -> None:
        """A model to begin with, if this server waits for one."""
        if self.server is None:
            self._handled[server] = sequence
            self._start(gift)
        else:
            self._queue.append(
                QueuedEvent(server, number=sequence, peer=True, lineage=self.membership.lineages.get(server, ""))
            )

    def receive_control(self, server: int, message: ControlMessage) -> None:
        """Another server said something that is no message."""
        if isinstance(message, BootstrapRequest):
            if self.server is not None and server in self.outboxes:
                self._askers.add(server)
                self._queue.append(QueuedEvent(self.id, change=GIFT))
            return
        self.membership.receive(server, message, saves=self.server is not None)
        self.apply_membership()

    def _watch(self) -> None:
        if self.rules.beat > 0 and len(self.view.members) > 1:
            self._effects.append(StartTimer(BEAT, self.rules.beat))

    def _beat(self) -> None:
        """Tell the others that this server is there, look who else is, and ask for what must be decided."""
        self._effects.append(StartTimer(BEAT, self.rules.beat))
        server = self.server
        if server is not None and server.epoch == self.view.epoch and not self._stopped:
            holds = server.has_token
            self._effects += [SendControl(j, message) for j, message in self.membership.beat(has_token=holds)]
            self.membership.update_suspects()
            self.membership.propose_if_needed(uses_token=type(server).uses_token)
        else:
            self._effects += [SendControl(j, message) for j, message in self.membership.beat(has_token=False)]
            self.membership.update_suspects()
        self.apply_membership()

    def _ask(self) -> None:
        """Ask the nearest of the others for a model to begin with; if nothing comes, ask the next."""
        if self.server is None:
            self._effects.append(StartTimer(ASK, self.rules.beat or 1.0))
            met = [
                j
                for j in self.membership.others
                if j in self.membership.lineages and j not in self.membership.suspected
            ]
            met.sort(key=lambda j: self.membership.failure_detector.away.get(j, math.inf))
            if met and not self.membership.new:
                self._effects.append(SendControl(met[self._asked // 5 % len(met)], BootstrapRequest()))
                self._asked += 1

    def apply_membership(self) -> None:
        """Do what follows from what is known of the other servers."""
        membership = self.membership
        for before, after in membership.adopted:
            self._change_members(before, after)
        membership.adopted.clear()
        if self.server is not None and membership.suspected != self._suspected:
            for j in sorted(membership.suspected - self._suspected):
                self._effects.append(WriteFact(PeerSuspected(self.id, j), len(self._queue)))
            for j in sorted(self._suspected - membership.suspected):
                self._effects.append(WriteFact(PeerTrusted(self.id, j), len(self._queue)))
            self._suspected = membership.suspected
            self._queue.append(QueuedEvent(self.id, change=SUSPECTS))
        at_once, later = membership.take_outgoing()
        self._effects += [SendControl(j, message) for j, message in at_once]
        self._control_messages += later
        if (membership.fenced or membership.outdated) and not self._stopped:
            self._stopped = True
            self._effects.append(StopProcess(membership.fenced or membership.outdated, anew=not membership.fenced))
        if membership.paxos.changed and self.server is not None:
            self._changed = self._wanted = True
            self._rest()

    def _change_members(self, before: View, after: View) -> None:
        """The servers are others now. What was kept for those who are gone, or are another one now, is void."""
        same = {
            j for j in before.members if before.members[j].lineage == getattr(after.members.get(j), "lineage", None)
        }
        for j in [j for j in self.outboxes if j not in same]:
            del self.outboxes[j]
            for known in (self.received, self.acknowledged, self._handled):
                known.pop(j, None)
        for j in self.membership.others:
            self.outboxes.setdefault(j, Outbox())
        self._askers &= self.outboxes.keys()
        strangers = frozenset(before.members.keys() - same)
        waiting = [a for a in self._queue if not (a.peer and a.sender in strangers)]
        if self.computing and self._queue[0] not in waiting[:1]:
            waiting.insert(0, self._queue[0])  # it is in service
        self._queue = deque(waiting)
        self._effects.append(MembershipChanged(after, strangers))
        if self.server is not None:
            self._queue.append(QueuedEvent(self.id, change=VIEW))

    def next_for(self, peer: int) -> OutboxEntry | None:
        """The next message for another server. It counts as sent over the present connection from now on."""
        box = self.outboxes[peer]
        posted = box.next()
        if posted is not None:
            box.sent = posted.sequence
        return posted

    def _reform(self, change: str) -> list[Action]:
        """Tell the server of other servers, or have it give to one that is new."""
        server = self.server
        assert server is not None
        if change == SUSPECTS:
            return server.suspect(self._suspected)
        if change == GIFT:
            askers, self._askers = self._askers, set()
            return [ToServer(j, server.bootstrap_state()) for j in sorted(askers)]
        view = self.view
        if view.epoch == server.epoch or self.id not in view.members:
            return []
        reformed = RecordFact(EpochStarted(self.id, view.epoch, list(view.members)))
        return [reformed, *server.reform(view.epoch, view.ring, leads=view.leader == self.id)]
