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

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from spyker.node.client_presence import ClientPresence
from spyker.node.control_messages import PeerHandshake
from spyker.node.effects import (
    ClientRejected,
    CloseSession,
    Completed,
    Effect,
    NodeStarted,
    Rejected,
    SaveCheckpoint,
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
    RejectedByPeer,
    Resume,
    Start,
    TimerFired,
    UpdateReceived,
)
from spyker.node.identity_alerts import IdentityAlerts
from spyker.node.inbox import ASK, AWAY, BEGIN, HEARTBEAT, RETRY, SAVE, SERVERS, VIEW, Inbox, NodeOptions, QueuedEvent
from spyker.node.keys import NoKeys
from spyker.node.membership import OPERATOR, Membership
from spyker.node.node_clock import NodeClock
from spyker.node.outbox import Outbox, OutboxEntry
from spyker.node.paxos import Proposal
from spyker.node.peers import NodePeers, PeerMarks
from spyker.node.pending_updates import most_unsaved
from spyker.node.rejection import Rejection
from spyker.node.status import NodeStatus, node_status
from spyker.node.task_tokens import COPIED_LEDGER, ClientTasks, TaskToken, TaskTokens
from spyker.node.views import View, first_view
from spyker.protocol.codec import schema_of
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
from spyker.protocol.server import Server, Work
from spyker.protocol.state import ServerState, Unpacker, pack


class Node:
    """One server process without I/O. :meth:`step` and :meth:`compute` change it; all else are queries.

    The package's documentation shows the loop of a driver.
    """

    def __init__(
        self,
        id: int,
        build: Callable[[Mapping[int, int]], Server],
        task_tokens: TaskTokens,
        options: NodeOptions,
        peers: Sequence[int] = (),
        *,
        membership: Membership | None = None,
        clock: NodeClock | None = None,
    ) -> None:
        """Make a node that has not started.

        Args:
            id: Number of this server.
            build: Makes the protocol's server, given the sizes of the clients that it starts with.
            task_tokens: Issues and checks the tokens of tasks.
            options: Options of the node.
            peers: The other servers, if they never change and never fail.
            membership: What this server knows of the others, in place of ``peers``. It must use ``clock``.
            clock: Set to the time of each event. ``build`` may use it as the algorithm's clock.

        """
        self.id, self.options = id, options
        self._build, self._task_tokens = build, task_tokens
        self._clock = clock or NodeClock()
        servers = sorted({id, *peers})
        membership = membership or Membership(
            id, first_view(servers, servers), self._clock, keys=NoKeys(options.lineage)
        )
        self._effects: list[Effect] = []
        self._inbox = Inbox()
        self._presence = ClientPresence(self._clock)
        self.alerts = IdentityAlerts(id, self._clock)
        self._peers = NodePeers(
            options,
            membership,
            self._inbox,
            self._effects,
            self._presence,
            self.alerts,
            start=self._start,
            save=self._save_at_once,
        )
        self._server: Server | None = None  # not before it has started
        self._sessions: dict[int, Any] = {}
        self._unwelcomed: set[int] = set()  # clients whose connection waits in the inbox
        self._sizes: dict[int, int] = {}  # of clients that wait for the start
        self._timers: dict[str, float] = {}  # of the algorithm, those that run or wait in the inbox
        self._compute: Callable[[], list[Action]] | None = None  # the handling of the first entry of the inbox
        self._lease: tuple[int, bool] | None = None  # epoch and lease when that began
        self._void = False  # the first entry is a departure that was taken back
        self._draining = False
        self._overdue = False  # the node does not wait for clients any longer
        self._awaits_bootstrap = membership.new  # it does not start without a bootstrap state
        self._saved_version = 0
        self._changed = False  # since the last checkpoint
        self._wanted = False  # a checkpoint, as soon as possible
        self._unsaved = 0  # updates
        self._client_unsaved = 1  # of one client, from which on a checkpoint is wanted and its client told of it
        self._marks: tuple[int, PeerMarks] | None = None  # version and marks of the checkpoint that is being written
        self._failed = False  # the last checkpoint could not be written, and it is not time yet to retry

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

    # --- Queries -----------------------------------------------------------------------------------------------------

    @property
    def server(self) -> Server | None:
        """The protocol's server, once it has started."""
        return self._server

    @property
    def membership(self) -> Membership:
        """What this server knows of the others."""
        return self._peers.membership

    @property
    def view(self) -> View:
        """The present membership."""
        return self._peers.view

    @property
    def outboxes(self) -> Mapping[int, Outbox]:
        """The outboxes, per peer."""
        return MappingProxyType(self._peers.outboxes)

    @property
    def received(self) -> Mapping[int, int]:
        """Per peer, the number of the last message that waits or was handled."""
        return MappingProxyType(self._peers.received)

    @property
    def acknowledged(self) -> Mapping[int, int]:
        """Per peer, the number of the last message whose effects a checkpoint holds."""
        return MappingProxyType(self._peers.acknowledged)

    @property
    def sessions(self) -> Mapping[int, Any]:
        """The sessions of the clients that are connected."""
        return MappingProxyType(self._sessions)

    @property
    def clients(self) -> Mapping[int, ClientTasks]:
        """What is known of each client's tasks."""
        return MappingProxyType(self._task_tokens.clients)

    @property
    def saved_version(self) -> int:
        """The model's version in the last checkpoint on disk."""
        return self._saved_version

    @property
    def draining(self) -> bool:
        """Whether the process is about to end."""
        return self._draining

    @property
    def awaits_bootstrap(self) -> bool:
        """Whether the node started, or will start, from the bootstrap state of another server."""
        return self._awaits_bootstrap

    @property
    def waiting(self) -> int:
        """Number of entries in the inbox, the one in service included."""
        return len(self._inbox)

    @property
    def handling(self) -> bool:
        """Whether a message is being handled: between ``HandleNext`` and ``Handled``."""
        return self._inbox.handling

    @property
    def ready(self) -> bool:
        """Whether the next event may be ``HandleNext``."""
        return bool(self._inbox) and self._server is not None and not (self._inbox.handling or self._peers.stopped)

    @property
    def next_entry(self) -> QueuedEvent:
        """The first entry of the inbox."""
        return self._inbox.head

    @property
    def light(self) -> bool:
        """Whether handling the first entry touches no model-sized array."""
        entry = self._inbox.head
        if entry.message is None:
            return entry.timer is None and not entry.change
        arrays = schema_of(type(entry.message)).arrays
        return not arrays and not isinstance(entry.message, Leave) and self.work() is Work.NOTHING

    def work(self) -> Work:
        """Return how heavy handling the first entry is."""
        assert self._server is not None
        entry = self._inbox.head
        if entry.timer is not None:
            return self._server.work_of(entry.timer)
        if entry.message is None or self._came_back(entry):
            return Work.NOTHING
        return self._server.work(entry.sender, entry.message)

    @property
    def settled(self) -> bool:
        """Whether everything that arrived has been handled and saved."""
        return not (self._inbox or self._changed or self._marks is not None)

    def check_client(self, client: int, size: int, layout: bytes, learning: bytes) -> None:
        """Raise a rejection if a client cannot take part."""
        options = self.options
        if options.clients is not None and client >= options.clients:
            raise Rejection("mismatch", f"client {client} of {options.clients}, counted from 0")
        if layout != options.layout:
            raise Rejection("mismatch", "the layout of the weights is another one; use the same task everywhere")
        if learning != options.learning:
            raise Rejection("mismatch", "task, training, seed or algorithm differ; use the same scenario everywhere")
        if not 0 < size <= options.most_data:
            raise Rejection("mismatch", f"a client with {size:,} data points; 1 to {options.most_data:,} are allowed")

    def verify_token(self, client: int, token: bytes) -> TaskToken:
        """Return what a task's token says, or raise a rejection if no update for that task is wanted."""
        return self._task_tokens.verify(client, token)

    def handshake(self, server: int) -> PeerHandshake:
        """Return what this server says of itself to another."""
        return self._peers.handshake(server)

    def next_for(self, peer: int, after: int) -> OutboxEntry | None:
        """Return the first message for a peer after number ``after``, if a checkpoint on disk holds it."""
        return self._peers.outboxes[peer].next(after)

    def may_lead(self, now: float) -> bool:
        """Return whether this server may use the token at this time, if it has it."""
        server = self._server
        return server is not None and server.epoch == self.view.epoch and self.membership.may_lead(now)

    def status(self, now: float) -> NodeStatus:
        """Return a summary for operators."""
        return node_status(self, now)

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
        self._effects += (StopTimer(BEGIN), StopTimer(ASK), NodeStarted(len(roster)))
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
        elif timer.startswith(AWAY):
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

    def _came_back(self, entry: QueuedEvent) -> bool:
        """Return whether the entry removes a client that has reconnected meanwhile."""
        return isinstance(entry.message, Leave) and not entry.requeued and entry.sender in self._sessions

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

    # --- Checkpoints -------------------------------------------------------------------------------------------------

    def _on_checkpoint_requested(self, event: CheckpointRequested) -> None:
        self._save_changes()

    def _save_changes(self) -> None:
        if self._changed:
            self._save_at_once()

    def _save_at_once(self) -> None:
        self._changed = self._wanted = True
        self._save_if_wanted()

    def _save_if_wanted(self) -> None:
        """Take a checkpoint if it is time for one, no other is being written, and no message is being handled."""
        if self._unsaved >= self.options.checkpoint_updates:
            self._wanted = True
        possible = self._marks is None and not (self._failed or self._inbox.handling or self._peers.stopped)
        if self._wanted and possible:
            self._save()

    def _save(self) -> None:
        server = self._server
        assert server is not None
        self._wanted, self._changed, self._unsaved = False, False, 0
        self._marks = server.version, self._peers.begin_checkpoint()
        self._task_tokens.begin_checkpoint()
        state = server.state()
        vectors = dict(state.vectors)
        numbers = {
            "id": self.id,
            "server": state.numbers,
            "vectors": list(state.vectors),
            "clients": self._task_tokens.numbers(),
            **self._peers.numbers(vectors),
            "requeued": pack(self._inbox.requeued, "requeued", vectors),
            "timers": dict(self._timers),
        }
        self._effects.append(SaveCheckpoint(numbers, vectors))

    def _on_checkpoint_saved(self, event: CheckpointSaved) -> None:
        assert self._marks is not None
        (self._saved_version, marks), self._marks = self._marks, None
        self._peers.checkpoint_saved(marks)
        self._tell_saved()
        self._save_if_wanted()

    def _tell_saved(self) -> None:
        """Tell clients with many unsaved updates, which may wait for this; the others learn it with their next task."""
        for k, unsaved in self._task_tokens.checkpoint_saved().items():
            tasks, session = self._task_tokens.entry(k), self._sessions.get(k)
            if session is not None and unsaved >= self._client_unsaved:
                self._effects.append(TellSaved(session, tasks.saved))
            self._wanted |= tasks.unsaved >= self._client_unsaved

    def _on_checkpoint_failed(self, event: CheckpointFailed) -> None:
        """Retry after a while, not at once: a full disk stays full for some time."""
        if self._marks is not None:
            self._peers.checkpoint_failed(self._marks[1])
        self._marks, self._changed, self._failed = None, True, True
        self._effects.append(StartTimer(RETRY, self.options.save_retry))


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
    PeerMessageReceived: lambda node, event: node._peers.receive(event),
    PeerAcknowledged: lambda node, event: node._peers.acknowledge(event.server, event.sequence),
    ControlReceived: lambda node, event: node._peers.receive_control(event),
    MembershipChangeRequested: Node._on_change_requested,
    MembershipChangeForced: Node._on_change_forced,
    MembershipRequestsWithdrawn: Node._on_requests_withdrawn,
}
