"""What one server process decides: it has one server of the protocol, and serves one message at a time.

Theory of operation
-------------------
Everything that can happen to the server is put into one queue: a client's answer, a client that comes or goes, a word
from another server, a timer. The first in the queue is served, and what it causes is asked of the world. Messages that
the server wants served again come before all others.

Between two messages, and only there, the server's state is taken for a checkpoint, which is written while the server
goes on. What happens meanwhile is for the next one.

Clients are answered at once. What other servers are told waits in an outbox until a checkpoint holds it
(:mod:`~spyker.node.outbox`), so that nobody ever knows of a state that could be lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from spyker.node.control_messages import ControlMessage
from spyker.node.effects import (
    AcknowledgePeer,
    ClientRejected,
    CloseSession,
    Completed,
    Effect,
    NodeStarted,
    SaveCheckpoint,
    SendControl,
    SendPeer,
    SendTask,
    WelcomeClient,
    WriteFact,
)
from spyker.node.inbox import ASK, AWAY, BEAT, BEGIN, RETRY, SAVE, SERVERS, VIEW, NodeOptions, QueuedEvent
from spyker.node.membership import Membership
from spyker.node.outbox import Outbox
from spyker.node.peers import NodePeers
from spyker.node.rejection import Rejection
from spyker.node.task_tokens import TaskToken, TaskTokens
from spyker.node.views import first_view
from spyker.protocol.codec import Array, Sizes, schema_of
from spyker.protocol.facts import PeerSuspected, UpdateApplied
from spyker.protocol.messages import (
    Action,
    BootstrapState,
    ClientMessage,
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

Marks: TypeAlias = tuple[int, dict[int, tuple[Outbox, int]], dict[int, int], list[tuple[int, ControlMessage]]]


class Node(NodePeers):
    """Decides for one server process. See the package for the duties of whoever drives it."""

    def __init__(
        self,
        id: int,
        build: Callable[[Mapping[int, int]], Server],
        task_tokens: TaskTokens,
        rules: NodeOptions,
        peers: Sequence[int] = (),
        membership: Membership | None = None,
    ) -> None:
        """``build`` makes the protocol's server with the clients that it begins with.

        ``membership`` knows the other servers; without it, they are ``peers``, who never change and never fail.
        """
        self.id, self.task_tokens, self.rules = id, task_tokens, rules
        self._build = build
        self.server: Server | None = None  # not before it starts
        self.sessions: dict[int, Any] = {}
        self.saved_version = 0
        servers = sorted({id, *peers})
        self.membership = membership or Membership(id, first_view(servers, servers), float, lineage=rules.lineage)
        self.outboxes = {j: Outbox() for j in self.membership.others}
        self.received: dict[int, int] = {}  # per peer, the number of the last message that waits or was handled
        self.acknowledged: dict[int, int] = {}  # per peer, the number up to which a checkpoint holds its effects
        self.draining = False
        self._handled: dict[int, int] = {}  # per peer, the number of the last message that was handled
        self._sizes: dict[int, int] = {}  # of the clients that wait for the start
        self._queue: deque[QueuedEvent] = deque()
        self._timers: dict[str, float] = {}  # of the server, those that run or wait for their turn
        self._effects: list[Effect] = []
        self._overdue = False  # it waits no longer for clients that are not there
        self._changed = False  # since the last checkpoint
        self._wanted = False  # a checkpoint, as soon as possible
        self._unsaved = 0  # updates
        self._marks: Marks | None = None  # what the one under way will have saved
        self._failed = False  # the last one could not be written, and it is not time yet to try again
        self.computing = False  # somebody is at the first message in the queue
        self._void = False
        self._control_messages: list[tuple[int, ControlMessage]] = []  # to be told when what they speak of is saved
        self._suspected: frozenset[int] = frozenset()  # as the server knows
        self._askers: set[int] = set()
        self._asked = 0
        self._stopped = False
        self._awaits_bootstrap = self.membership.new  # and does not begin without

    def take_effects(self) -> list[Effect]:
        """What is to be done, since the last time."""
        effects, self._effects = self._effects, []
        return effects

    # --- Beginning -------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin as soon as enough clients are there; who is new among servers, when it was given a model."""
        self._watch()
        if self._awaits_bootstrap:
            self._effects.append(StartTimer(ASK, self.rules.beat or 1.0))
        elif self.rules.wait_for == 0:
            self._start()
        else:
            self._effects.append(StartTimer(BEGIN, self.rules.join_timeout))

    def _start(self, gift: BootstrapState | None = None) -> None:
        roster = {k: self._sizes[k] for k in sorted(self._sizes) if k in self.sessions}
        self.server = server = self._built(roster)
        actions: list[Action] = []
        if self.view.epoch > 0:
            leads = gift is None and self.view.leader == self.id
            actions += server.reform(self.view.epoch, self.view.ring, leads=leads)
        if gift is not None:
            server.bootstrap_from(gift)
        if self.membership.suspected:
            self._suspected = self.membership.suspected
            actions += [RecordFact(PeerSuspected(self.id, j)) for j in sorted(self._suspected)]
            actions += server.suspect(self._suspected)
        for k in roster:
            self.task_tokens.entry(k).member = True
        self._effects += (StopTimer(BEGIN), StopTimer(ASK), NodeStarted(len(roster)))
        self._perform([*actions, *server.start()])
        self._go_on()

    def _built(self, roster: Mapping[int, int]) -> Server:
        server = self._build(roster)
        # Of a new epoch it may be told only when its turn comes; until then its token is one of an earlier epoch.
        server._may_lead = lambda: server.epoch == self.view.epoch and self.membership.may_lead()
        return server

    def resume(self, numbers: Mapping[str, Any], vectors: Mapping[str, Array]) -> None:
        """Go on from a checkpoint."""
        self.membership.restore(numbers["seats"])
        self.outboxes = {j: Outbox() for j in self.membership.others}
        self.server = server = self._built({})
        server.restore(ServerState(numbers["server"], {name: vectors[name] for name in numbers["vectors"]}))
        self.task_tokens.restore(numbers["clients"])
        saved = self._unpacker(vectors)
        for j, box in numbers["outboxes"].items():
            self.outboxes[int(j)].restore(box, saved)
        self._handled = {int(j): sequence for j, sequence in numbers["handled"].items()}
        self._queue.extendleft(QueuedEvent(k, m, again=True) for k, m in reversed(saved.unpack(numbers["again"])))
        self.received, self.acknowledged = dict(self._handled), dict(self._handled)
        self.saved_version = server.version
        for k, entry in self.task_tokens.clients.items():
            if entry.member:
                self._effects.append(StartTimer(f"{AWAY}{k}", self.rules.client_timeout))
        for timer, seconds in numbers["timers"].items():
            self._start_timer(timer, seconds)
        if server.epoch < self.view.epoch:
            self._queue.append(QueuedEvent(self.id, change=VIEW))
        self._watch()
        self._go_on()

    def _unpacker(self, vectors: Mapping[str, Array]) -> Unpacker:
        assert self.server is not None
        return Unpacker(vectors, self.server.kinds(), Sizes(self.server.weights.snapshot().size, self.server.n))

    def _go_on(self) -> None:
        self._effects.append(StartTimer(SAVE, self.rules.checkpoint_seconds))
        self._changed = self._wanted = True
        self._rest()

    # --- Clients ---------------------------------------------------------------------------------------------------

    def check_client(self, client: int, size: int, layout: bytes, learning: bytes) -> None:
        """Refuse a client that cannot take part."""
        rules = self.rules
        if rules.clients is not None and client >= rules.clients:
            raise Rejection("agreement", f"client {client} of {rules.clients}, counted from 0")
        if layout != rules.layout:
            raise Rejection("agreement", "the layout of the weights is another one; use the same task everywhere")
        if learning != rules.learning:
            raise Rejection("agreement", "task, training, seed or algorithm differ; use the same scenario everywhere")
        if not 0 < size <= rules.most_data:
            raise Rejection("agreement", f"a client with {size:,} data points; 1 to {rules.most_data:,} are allowed")

    def connect_client(self, client: int, session: Any, size: int, holding: bytes | None = None) -> None:
        """A client that was admitted comes, or comes back; it may hold a task."""
        before = self.sessions.get(client)
        if before is not None:
            self._effects.append(CloseSession(before, "replaced by a newer connection of the same client"))
        else:
            self._effects.append(StopTimer(f"{AWAY}{client}"))
        self.sessions[client] = session
        if self.server is not None:
            self._queue.append(QueuedEvent(client, session=session, size=size, holding=holding))
            return
        self._sizes[client] = self.task_tokens.entry(client).size = size
        self._effects.append(WelcomeClient(session, keep=False, saved_version=self.saved_version))
        if (len(self.sessions) >= self.rules.wait_for or self._overdue) and not self._awaits_bootstrap:
            self._start()

    def disconnect_client(self, client: int, session: Any) -> None:
        """A client's connection ended. It may come back."""
        if self._gone(client, session) and not self.draining:
            self._effects.append(StartTimer(f"{AWAY}{client}", self.rules.client_timeout))

    def remove_client(self, client: int, session: Any) -> None:
        """A client says that it will not come back."""
        if self._gone(client, session):
            self._give_up(client)

    def _gone(self, client: int, session: Any) -> bool:
        if self.sessions.get(client) is not session:
            return False  # another connection took its place
        del self.sessions[client]
        self._sizes.pop(client, None)
        return True

    def _give_up(self, client: int) -> None:
        if self.server is not None and client not in self.sessions:
            self._queue.append(QueuedEvent(client, Leave()))

    def verify_token(self, client: int, ticket: bytes) -> TaskToken:
        """Refuse an answer that begins to arrive, unless it is wanted."""
        return self.task_tokens.verify(client, ticket)

    def receive_update(self, client: int, number: int, message: ClientMessage, receipt: Any = None) -> None:
        """The answer to a task has arrived in full."""
        self.task_tokens.redeem(client, number)
        self._queue.append(QueuedEvent(client, message, number, receipt=receipt))

    # --- Timers ------------------------------------------------------------------------------------------------------

    def expire(self, timer: str) -> None:
        """A timer has run out."""
        if self._stopped:
            return
        if timer == BEAT:
            self._beat()
        elif timer == ASK:
            self._ask()
        elif timer == SAVE:
            self._effects.append(StartTimer(SAVE, self.rules.checkpoint_seconds))
            self.save_soon()
        elif timer == RETRY:
            self._failed = False
            self.save_soon()
        elif timer == BEGIN:
            self._overdue = True
            if self.server is None and self.sessions:
                self._start()
        elif timer.startswith(AWAY):
            self._give_up(int(timer.removeprefix(AWAY)))
        elif (name := timer.removeprefix(SERVERS)) in self._timers and not self.draining:
            self._queue.append(QueuedEvent(self.id, timer=name))

    def _start_timer(self, timer: str, seconds: float) -> None:
        self._stop_timer(timer)
        self._timers[timer] = seconds
        self._effects.append(StartTimer(f"{SERVERS}{timer}", seconds))

    def _stop_timer(self, timer: str) -> None:
        """A timer of the server does not run any more, nor does it wait for its turn; it may be the one in service."""
        if self._timers.pop(timer, None) is not None:
            self._queue = deque(a for n, a in enumerate(self._queue) if n == 0 or a.timer != timer)

    # --- One message at a time ---------------------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """How many messages wait, or are in service."""
        return len(self._queue)

    @property
    def ready(self) -> bool:
        """Whether there is something to serve, and nobody is at it."""
        return bool(self._queue) and self.server is not None and not self.computing and not self._stopped

    @property
    def light(self) -> bool:
        """Whether no vector is gone through for the first message in the queue."""
        event = self._queue[0]
        if event.message is None:
            return event.timer is None and not event.change
        arrays = schema_of(type(event.message)).arrays
        return not arrays and not isinstance(event.message, Leave) and self.work() is Work.NOTHING

    def work(self) -> Work:
        """How heavy the first message in the queue is."""
        assert self.server is not None
        event = self._queue[0]
        if event.timer is not None:
            return self.server.work_of(event.timer)
        if event.message is None or self._came_back(event):
            return Work.NOTHING
        return self.server.work(event.sender, event.message)

    def _came_back(self, event: QueuedEvent) -> bool:
        """Whether a client that was given up came back before its turn came."""
        return isinstance(event.message, Leave) and not event.again and event.sender in self.sessions

    def compute(self) -> list[Action]:
        """Let the server handle the first message in the queue. Nothing of it counts before :meth:`finish`."""
        assert self.server is not None
        self.computing = True
        event = self._queue[0]
        if event.timer is not None:
            return self.server.expire(event.timer)
        if event.change:
            return self._reform(event.change)
        self._void = self._came_back(event)
        if event.message is None or self._void:
            return []
        return self.server.handle(event.sender, event.message)

    def finish(self, actions: list[Action]) -> None:
        """Take note of the message that was handled, and of what the server wants done."""
        self.computing = False
        event = self._queue[0]
        if event.again:
            pass  # it was taken note of when it was served first
        elif event.timer is not None:
            del self._timers[event.timer]
        elif event.session is not None:
            actions = self._welcome_back(event)
        elif event.peer:
            if event.sender in self.outboxes and event.lineage == self.membership.lineages.get(event.sender, ""):
                self._handled[event.sender] = event.number
            self._wanted = True
        elif event.change:
            self._wanted = True
        elif event.number:
            self.task_tokens.entry(event.sender).applied = event.number
        elif isinstance(event.message, Leave) and not self._void:
            self.task_tokens.entry(event.sender).member = False
        self._changed = True
        self._perform(actions)
        self._queue.popleft()
        for action in actions:
            if isinstance(action, Requeue):
                self._queue.extendleft(QueuedEvent(k, message, again=True) for k, message in reversed(action.messages))
        if event.receipt is not None:
            self._effects.append(Completed(event.receipt))
        self._rest()

    def _welcome_back(self, event: QueuedEvent) -> list[Action]:
        """A client came: does it go on with what it holds, wait for its next task, or join?"""
        assert self.server is not None
        k = event.sender
        if self.sessions.get(k) is not event.session:
            return []  # and went
        entry = self.task_tokens.entry(k)
        entry.size = event.size
        keep = False
        if event.holding is not None:
            try:
                self.task_tokens.verify(k, event.holding)
                keep = entry.member
            except Rejection as rejection:
                if rejection.reason == "unknown-task":
                    self._effects.append(ClientRejected(k, rejection))
        self._effects.append(WelcomeClient(event.session, keep, self.saved_version))
        if keep or (entry.member and entry.owed):
            return []
        entry.member = True
        return self.server.handle(k, Join(event.size))

    def _perform(self, actions: Iterable[Action]) -> None:
        for action in actions:
            if isinstance(action, ToClient):
                self._give(action.client, action.message)
            elif isinstance(action, RecordFact):
                self._effects.append(WriteFact(action.fact, len(self._queue)))
                if type(action.fact) is UpdateApplied:
                    self._unsaved += 1
            elif isinstance(action, ToServer):
                assert isinstance(action.message, PeerMessage)
                if action.server in self.outboxes:  # otherwise it is one of us no more
                    self.outboxes[action.server].post(action.message)
                    self._wanted = True
            elif isinstance(action, StartTimer):
                self._start_timer(action.timer, action.seconds)
            elif isinstance(action, StopTimer):
                self._stop_timer(action.timer)
                self._effects.append(StopTimer(f"{SERVERS}{action.timer}"))

    def _give(self, k: int, message: ServerMessage) -> None:
        """Give a client a task. If it is not there, it will ask when it comes back."""
        ticket = self.task_tokens.issue(k, getattr(message, "age", 0.0), getattr(message, "version", 0))
        session = self.sessions.get(k)
        if session is not None:
            self._effects.append(SendTask(session, ticket, message, self.saved_version))

    # --- Checkpoints -------------------------------------------------------------------------------------------------

    @property
    def settled(self) -> bool:
        """Whether everything that arrived has been served and saved."""
        return not (self._queue or self._changed or self._marks is not None)

    def save_soon(self) -> None:
        """Take a checkpoint, if anything happened since the last."""
        if self._changed:
            self._wanted = True
            self._rest()

    def _rest(self) -> None:
        """Between two messages: is it time for a checkpoint?"""
        if self._unsaved >= self.rules.checkpoint_updates:
            self._wanted = True
        if self._wanted and self._marks is None and not self._failed and not self.computing and not self._stopped:
            self._save()

    def _save(self) -> None:
        server = self.server
        assert server is not None
        self._wanted, self._changed, self._unsaved = False, False, 0
        messages, self._control_messages = self._control_messages, []
        lasts = {j: (box, box.last) for j, box in self.outboxes.items()}
        self._marks = server.version, lasts, dict(self._handled), messages
        state = server.state()
        vectors = dict(state.vectors)
        numbers = {
            "id": self.id,
            "server": state.numbers,
            "vectors": list(state.vectors),
            "clients": self.task_tokens.numbers(),
            "outboxes": {str(j): box.numbers(f"outbox-{j}", vectors) for j, box in self.outboxes.items()},
            "handled": {str(j): sequence for j, sequence in self._handled.items()},
            "seats": self.membership.numbers(),
            "again": pack([(a.sender, a.message) for a in self._queue if a.again], "again", vectors),
            "timers": dict(self._timers),
        }
        self._effects.append(SaveCheckpoint(numbers, vectors))

    def saved(self) -> None:
        """The checkpoint is on the disk."""
        assert self._marks is not None
        self.membership.saved = self.membership.saves
        (self.saved_version, sent, handled, messages), self._marks = self._marks, None
        for j, (box, sequence) in sent.items():
            if self.outboxes.get(j) is box and box.commit(sequence):
                self._effects.append(SendPeer(j))
        for j, sequence in handled.items():
            if self._handled.get(j, 0) >= sequence > self.acknowledged.get(j, 0):
                self._effects.append(AcknowledgePeer(j, sequence))
                self.acknowledged[j] = sequence
        self._effects += [SendControl(j, word) for j, word in messages]
        self._rest()

    def save_failed(self) -> None:
        """It could not be written. It is tried again, but not at once: a full disk stays full for a while."""
        if self._marks is not None:
            self._control_messages = [*self._marks[3], *self._control_messages]
        self._marks, self._changed, self._failed = None, True, True
        self._effects.append(StartTimer(RETRY, self.rules.save_retry))
