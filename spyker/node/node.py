"""The decisions of one server process: a :class:`Node` hands its protocol server one message at a time.

Theory of operation
-------------------
Everything that concerns the protocol's server waits in one inbox: updates, clients that connect or leave, messages of
other servers, expired timers, membership changes. The server handles the first entry, and its actions become effects.
Messages that the server asks for again go to the front.

A checkpoint is a consistent snapshot: it is taken between two messages only, and written while the server goes on.
Changes made meanwhile are part of the next checkpoint.

Clients are answered at once. Messages to other servers wait in an outbox until a checkpoint on disk holds them
(:mod:`~spyker.node.outbox`), so that no other server ever learns of a state that a crash could undo.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from spyker.node.control_messages import Heartbeat
from spyker.node.effects import (
    ClientRejected,
    CloseSession,
    Completed,
    Effect,
    NodeStarted,
    Rejected,
    SendTask,
    TellSaved,
    WelcomeClient,
    WriteFact,
)
from spyker.node.events import (
    CheckpointFailed,
    CheckpointRequested,
    CheckpointSaved,
    ClientConnected,
    ClientDisconnected,
    ClientLeft,
    ControlReceived,
    Drain,
    Event,
    Handled,
    HandleNext,
    MembershipChangeForced,
    MembershipChangeRequested,
    MembershipRequestsWithdrawn,
    PeerAcknowledged,
    PeerConnected,
    PeerHelloReceived,
    PeerMessageReceived,
    PeerPortClosed,
    RejectedByPeer,
    Resume,
    Start,
    TimerFired,
    UpdateReceived,
)
from spyker.node.inbox import ASK, AWAY, BEGIN, BEGIN_EMPTY, HEARTBEAT, RETRY, SAVE, SERVERS, VIEW, QueuedEvent
from spyker.node.membership import OPERATOR
from spyker.node.node_checkpoints import NodeCheckpoints
from spyker.node.paxos import Proposal
from spyker.node.pending_updates import most_unsaved
from spyker.node.rejection import Rejection
from spyker.node.task_tokens import COPIED_LEDGER
from spyker.protocol.facts import LedgerCopied, UpdateApplied
from spyker.protocol.messages import (
    Action,
    BootstrapState,
    Join,
    Leave,
    PeerMessage,
    RecordFact,
    Requeue,
    ServerMessage,
    StartTimer,
    StopTimer,
    ToClient,
    ToServer,
)
from spyker.protocol.server import Server
from spyker.protocol.state import ServerState, Unpacker


class Node(NodeCheckpoints):
    """One server process without I/O. :meth:`step` and :meth:`compute` change it; all else are queries.

    The package's documentation shows the loop of a driver.
    """

    # --- Events ------------------------------------------------------------------------------------------------------

    def step(self, event: Event) -> list[Effect]:
        """Apply an event and return the effects, to be carried out in their order.

        If the event was rejected, the last effect is :class:`~spyker.node.effects.Rejected`.
        """
        self._clock.advance(event.now, handling=self._inbox.handling)
        try:
            STEPS[type(event)](self, event)
        except Rejection as rejection:
            self._effects.append(Rejected(rejection))
        effects = self._effects.copy()
        self._effects.clear()
        return effects

    def compute(self) -> list[Action]:
        """Let the server handle the message of the last :class:`~spyker.node.events.HandleNext`.

        This may run in a thread while events go on: until :class:`~spyker.node.events.Handled` the node leaves its
        server alone.
        """
        assert self._compute is not None
        return self._compute()

    # --- Starting ----------------------------------------------------------------------------------------------------

    def _on_start(self, event: Start) -> None:
        self._peers.start_heartbeats()
        if self._awaits_bootstrap:
            self._effects.append(StartTimer(ASK, self.options.heartbeat_interval or 1.0))
        elif self.options.min_clients == 0:
            self._start()
        else:
            self._effects.append(StartTimer(BEGIN, self.options.join_timeout))

    def _start(self, bootstrap: BootstrapState | None = None) -> None:
        roster = {k: self._sizes[k] for k in sorted(self._sizes) if k in self._sessions}
        self._server = server = self._built(roster)
        actions = self._peers.started(server, bootstrap)
        for k in roster:
            self._task_tokens.entry(k).member = True
        self._effects += (StopTimer(BEGIN), StopTimer(BEGIN_EMPTY), StopTimer(ASK), NodeStarted(len(roster)))
        self._perform([*actions, *server.start()])
        self._go_on()

    def _built(self, roster: Mapping[int, int]) -> Server:
        server = self._build(roster)
        server.use_lease(self._holds_lease)
        self._client_unsaved = most_unsaved(server.weights.snapshot().size) // 2
        return server

    def _holds_lease(self) -> bool:
        """Return whether the server may use its token; while it handles a message, as of when that began.

        The server learns of a new epoch only when its turn comes; until then its token is one of an earlier epoch.
        """
        server = self._server
        assert server is not None
        epoch, leads = self._lease or (self.view.epoch, self.membership.may_lead())
        return server.epoch == epoch and leads

    def _on_resume(self, event: Resume) -> None:
        numbers, vectors = event.numbers, event.vectors
        self._peers.restore_membership(numbers)
        self._server = server = self._built({})
        server.restore(ServerState(numbers["server"], {name: vectors[name] for name in numbers["vectors"]}))
        self._task_tokens.restore(numbers["clients"])
        saved = Unpacker(vectors, server.kinds(), server.array_sizes)
        self._peers.restore(numbers, server, saved)
        self._inbox.requeue(saved.unpack(numbers["requeued"]))
        self._saved_version = server.version
        for k, entry in self._task_tokens.clients.items():
            if entry.member:
                self._effects.append(StartTimer(f"{AWAY}{k}", self.options.client_timeout))
        for timer, seconds in numbers["timers"].items():
            self._start_timer(timer, seconds)
        if server.epoch < self.view.epoch:
            self._inbox.append(QueuedEvent(self.id, change=VIEW))
        self._peers.start_heartbeats()
        self._go_on()

    def _go_on(self) -> None:
        self._effects.append(StartTimer(SAVE, self.options.checkpoint_seconds))
        self._save_at_once()

    def _on_drain(self, event: Drain) -> None:
        self._draining = True

    # --- Clients -----------------------------------------------------------------------------------------------------

    def _on_client_connected(self, event: ClientConnected) -> None:
        client, session = event.client, event.session
        before = self._sessions.get(client)
        if before is not None:
            self._effects.append(CloseSession(before, "replaced by a newer connection of the same client"))
        else:
            self._effects.append(StopTimer(f"{AWAY}{client}"))
        self._sessions[client] = session
        self._presence.connected(client)
        tasks = self._task_tokens.entry(client)
        tasks.booked = max(tasks.booked, event.booked)
        if self._server is not None:
            self._unwelcomed.add(client)
            self._inbox.append(QueuedEvent(client, session=session, size=event.size, held_tokens=event.held_tokens))
            return
        self._sizes[client] = tasks.size = event.size
        keep = self._hold(client, event.held_tokens)
        self._effects.append(WelcomeClient(session, keep, self._saved_version, booked=tasks.booked))
        if (len(self._sessions) >= self.options.min_clients or self._overdue) and not self._awaits_bootstrap:
            self._start()

    def _on_client_disconnected(self, event: ClientDisconnected) -> None:
        if self._remove_session(event.client, event.session) and not self._draining:
            self._presence.lost(event.client)
            self._effects.append(StartTimer(f"{AWAY}{event.client}", self.options.client_timeout))

    def _on_client_left(self, event: ClientLeft) -> None:
        if self._remove_session(event.client, event.session):
            self._remove_client(event.client)

    def _remove_session(self, client: int, session: Any) -> bool:
        """Remove a client's session; return False if a newer one has replaced it."""
        if client not in self._sessions or self._sessions[client] != session:
            return False
        del self._sessions[client]
        self._presence.disconnected(client)
        self._sizes.pop(client, None)
        return True

    def _remove_client(self, client: int) -> None:
        if self._server is not None and client not in self._sessions:
            self._inbox.append(QueuedEvent(client, Leave()))

    def _on_update_received(self, event: UpdateReceived) -> None:
        most = self.options.most_booked
        if most is not None and event.booked > most:
            problem = f"training {event.booked:,} of client {event.client} is more than its {most:,}"
            raise Rejection("privacy-budget-spent", problem)
        try:
            self._task_tokens.redeem(event.client, event.number, event.booked)
        except Rejection as rejection:
            if rejection.reason == COPIED_LEDGER:
                self._effects.append(WriteFact(LedgerCopied(self.id, event.client, event.booked), len(self._inbox)))
                self._changed = True
            raise
        self._presence.answered(event.client, event.number)
        self._inbox.append(
            QueuedEvent(event.client, event.message, event.number, receipt=event.receipt, booked=event.booked)
        )

    # --- Other servers -----------------------------------------------------------------------------------------------

    def _on_control_received(self, event: ControlReceived) -> None:
        self._peers.receive_control(event)
        waits = self._server is None and not self._awaits_bootstrap and not self._others_started
        if waits and isinstance(event.message, Heartbeat) and event.message.checkpoints:
            self._others_started = True
            self._effects.append(StartTimer(BEGIN_EMPTY, self.membership.failure_detector.suspect_after))

    def _on_change_requested(self, event: MembershipChangeRequested) -> None:
        self.membership.request(Proposal(OPERATOR, event.change, event.before))

    def _on_change_forced(self, event: MembershipChangeForced) -> None:
        self.membership.force(event.proof)
        self._peers.apply_membership()

    def _on_requests_withdrawn(self, event: MembershipRequestsWithdrawn) -> None:
        self.membership.withdraw()

    # --- Timers ------------------------------------------------------------------------------------------------------

    def _on_timer_fired(self, event: TimerFired) -> None:
        timer = event.timer
        if self._peers.stopped:
            return
        if timer == HEARTBEAT:
            self._peers.heartbeat()
        elif timer == ASK:
            self._peers.request_bootstrap()
        elif timer == SAVE:
            self._effects.append(StartTimer(SAVE, self.options.checkpoint_seconds))
            self._save_changes()
        elif timer == RETRY:
            self._failed = False
            self._save_changes()
        elif timer == BEGIN:
            self._overdue = True
            if self._server is None and self._sessions:
                self._start()
        elif timer == BEGIN_EMPTY:
            if self._server is None and not self._sessions:
                self._start()  # other servers have, and exchange models with this one
        elif timer.startswith(AWAY):
            self._presence.departed(int(timer.removeprefix(AWAY)))
            self._remove_client(int(timer.removeprefix(AWAY)))
        elif (name := timer.removeprefix(SERVERS)) in self._timers and not self._draining:
            self._inbox.append(QueuedEvent(self.id, timer=name))

    def _start_timer(self, timer: str, seconds: float) -> None:
        self._stop_timer(timer)
        self._timers[timer] = seconds
        self._effects.append(StartTimer(f"{SERVERS}{timer}", seconds))

    def _stop_timer(self, timer: str) -> None:
        if self._timers.pop(timer, None) is not None:
            self._inbox.remove_timer(timer)

    # --- One message at a time ---------------------------------------------------------------------------------------

    def _on_handle_next(self, event: HandleNext) -> None:
        server, entry = self._server, self._inbox.head
        assert server is not None
        assert not self._inbox.handling
        self._lease = self.view.epoch, self.membership.may_lead()
        self._void = self._came_back(entry)
        self._inbox.handling = True
        sender, message, timer = entry.sender, entry.message, entry.timer
        if timer is not None:
            self._compute = lambda: server.expire(timer)
        elif entry.change:
            self._compute = self._peers.prepare(entry.change)
        elif message is None or self._void:
            self._compute = list
        else:
            if entry.number and not entry.peer and self._task_tokens.is_resent(sender, entry.number):
                server.expect_resent(sender)
            self._compute = lambda: server.handle(sender, message)

    def _on_handled(self, event: Handled) -> None:
        self._inbox.handling, self._compute, self._lease = False, None, None
        entry, actions = self._inbox.head, event.actions
        if entry.requeued:
            pass  # it was noted when it was handled first
        elif entry.timer is not None:
            del self._timers[entry.timer]
        elif entry.session is not None:
            actions = self._welcome(entry)
        elif entry.peer:
            self._peers.note_handled(entry)
            self._wanted = True
        elif entry.change:
            self._wanted = True
        elif entry.number:
            self._wanted |= self._task_tokens.handled(entry.sender, entry.number, entry.booked) >= (
                self._client_unsaved
            )
        elif isinstance(entry.message, Leave) and not self._void:
            self._task_tokens.entry(entry.sender).member = False
        self._changed = True
        self._perform(actions)
        self._inbox.pop()
        for action in actions:
            if isinstance(action, Requeue):
                self._inbox.requeue(action.messages)
        if entry.receipt is not None:
            self._effects.append(Completed(entry.receipt))
        self._save_if_wanted()

    def _welcome(self, entry: QueuedEvent) -> list[Action]:
        """Welcome a client that has connected: it continues its task, waits for the next one, or joins."""
        assert self._server is not None
        k = entry.sender
        if self._sessions.get(k) != entry.session:
            return []  # it has disconnected meanwhile
        self._unwelcomed.discard(k)
        self._server.reconnected(k)
        tasks = self._task_tokens.entry(k)
        tasks.size = entry.size
        keep = self._hold(k, entry.held_tokens)
        ask = tasks.member and not tasks.owed and self._task_tokens.ask(k)
        self._effects.append(
            WelcomeClient(entry.session, keep, self._saved_version, tasks.taken, tasks.saved, ask, tasks.booked)
        )
        if ask or (tasks.member and tasks.owed):
            return []
        tasks.member = True
        return self._server.handle(k, Join(entry.size))

    def _hold(self, k: int, tokens: Iterable[bytes]) -> bool:
        """Note the updates that a client keeps; return whether it must keep them."""
        keep, rejection = self._task_tokens.hold(k, tokens)
        if rejection is not None:
            self._effects.append(ClientRejected(k, rejection))
        return keep

    def _perform(self, actions: Iterable[Action]) -> None:
        for action in actions:
            if isinstance(action, ToClient):
                self._send_task(action.client, action.message)
            elif isinstance(action, RecordFact):
                self._effects.append(WriteFact(action.fact, len(self._inbox)))
                if type(action.fact) is UpdateApplied:
                    self._unsaved += 1
            elif isinstance(action, ToServer):
                assert isinstance(action.message, PeerMessage)
                self._wanted |= self._peers.post(action.server, action.message)
            elif isinstance(action, StartTimer):
                self._start_timer(action.timer, action.seconds)
            elif isinstance(action, StopTimer):
                self._stop_timer(action.timer)
                self._effects.append(StopTimer(f"{SERVERS}{action.timer}"))

    def _send_task(self, k: int, message: ServerMessage) -> None:
        """Issue a task, and send it if the client is connected. If not, it gets another one when it reconnects.

        If the client keeps updates that were lost, it sends the next one in place of a training.
        """
        session = None if k in self._unwelcomed else self._sessions.get(k)
        tasks = self._task_tokens.entry(k)
        if session is not None and self._task_tokens.ask(k):
            self._effects.append(TellSaved(session, tasks.saved, ask=True))
            return
        token = self._task_tokens.issue(k, getattr(message, "age", 0.0), getattr(message, "version", 0))
        if session is not None:
            self._presence.assigned(k, tasks.given)
            self._effects.append(SendTask(session, token, message, self._saved_version, tasks.given, tasks.saved))


STEPS: dict[type[Event], Callable[[Node, Any], None]] = {
    Start: Node._on_start,
    Resume: Node._on_resume,
    TimerFired: Node._on_timer_fired,
    Drain: Node._on_drain,
    HandleNext: Node._on_handle_next,
    Handled: Node._on_handled,
    CheckpointRequested: Node._on_checkpoint_requested,
    CheckpointSaved: Node._on_checkpoint_saved,
    CheckpointFailed: Node._on_checkpoint_failed,
    ClientConnected: Node._on_client_connected,
    ClientDisconnected: Node._on_client_disconnected,
    ClientLeft: Node._on_client_left,
    UpdateReceived: Node._on_update_received,
    PeerHelloReceived: lambda node, event: node._peers.hello(event),
    PeerConnected: lambda node, event: node._peers.connected(event),
    RejectedByPeer: lambda node, event: node._peers.rejected(event),
    PeerPortClosed: lambda node, event: node._peers.port_closed(event),
    PeerMessageReceived: lambda node, event: node._peers.receive(event),
    PeerAcknowledged: lambda node, event: node._peers.acknowledge(event.server, event.sequence),
    ControlReceived: Node._on_control_received,
    MembershipChangeRequested: Node._on_change_requested,
    MembershipChangeForced: Node._on_change_forced,
    MembershipRequestsWithdrawn: Node._on_requests_withdrawn,
}
