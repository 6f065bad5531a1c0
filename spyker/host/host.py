"""What one server process decides: it has one server of the protocol, and serves one message at a time.

Theory of operation
-------------------
Everything that can happen to the server is put into one queue: a client's answer, a client that comes or goes, a word
from another server, a timer. The first in the queue is served, and what it causes is asked of the world. Messages that
the server wants served again come before all others.

Between two messages, and only there, the server's state is taken for a checkpoint, which is written while the server
goes on. What happens meanwhile is for the next one.

Clients are answered at once. What other servers are told waits in an outbox until a checkpoint holds it
(:mod:`~spyker.host.outbox`), so that nobody ever knows of a state that could be lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from spyker.host.effects import (
    Acknowledge,
    Close,
    Done,
    Effect,
    Give,
    Refused,
    Save,
    Started,
    Tell,
    Welcome,
    WriteDown,
)
from spyker.host.outbox import REMEDY, Outbox, Posted
from spyker.host.refusal import Refusal
from spyker.host.tickets import Ledger, Ticket
from spyker.protocol.facts import UpdateApplied
from spyker.protocol.forms import Array, Sizes, declaration
from spyker.protocol.messages import (
    Action,
    ClientMessage,
    Join,
    Leave,
    PeerMessage,
    Record,
    ServeAgain,
    ServerMessage,
    StartTimer,
    StopTimer,
    ToClient,
    ToServer,
)
from spyker.protocol.saving import State, Unpacker, pack
from spyker.protocol.server import Server, Work

MOST_DATA = 1 << 31  # data points of one client; in an average by size, more would silence everybody else
BEGIN, SAVE, RETRY, AWAY, SERVERS = "begin", "save", "retry", "away:", "server:"  # timers; two are beginnings of names


@dataclass(frozen=True, slots=True)
class Rules:
    """How a host behaves, and what whoever comes must agree with."""

    clients: int
    """Clients are numbered from 0 up to here."""
    layout: bytes = b""
    """A digest of what the numbers of a model mean."""
    learning: bytes = b""
    """A digest of what clients and servers must agree on."""
    deployment: bytes = b""
    """A digest of what servers must agree on."""
    lineage: str = ""
    """Made at random when this server's state began."""
    wait_for: int = 0
    """Begin with so many clients."""
    join_timeout: float = 60.0
    """Begin after so many seconds with those who are there, if anybody is."""
    client_timeout: float = 60.0
    """A client that stays away for so many seconds has left."""
    checkpoint_updates: int = 100
    checkpoint_seconds: float = 30.0
    save_retry: float = 1.0
    most_data: int = MOST_DATA


class Arrival(NamedTuple):
    """Something that waits for its turn."""

    sender: int
    message: ClientMessage | PeerMessage | None = None
    number: int = 0
    """Of the task that is answered, or of the peer's message."""
    peer: bool = False
    receipt: Any = None
    session: Any = None
    """The connection of a client that comes, whose data has so many points, and who holds this task."""
    size: int = 0
    holding: bytes | None = None
    timer: str | None = None
    """The server's own timer that has run out."""
    again: bool = False
    """Whether it was served before, and the server wanted it back."""


class Host:
    """Decides for one server process. See the package for the duties of whoever drives it."""

    def __init__(
        self,
        id: int,
        build: Callable[[Mapping[int, int]], Server],
        ledger: Ledger,
        rules: Rules,
        peers: Sequence[int] = (),
    ) -> None:
        """``build`` makes the protocol's server with the clients that it begins with."""
        self.id, self.ledger, self.rules = id, ledger, rules
        self._build = build
        self.server: Server | None = None  # not before it starts
        self.sessions: dict[int, Any] = {}
        self.saved_version = 0
        self.lineages: dict[int, str] = {}  # per peer, which life of its it told us of
        self.outboxes = {j: Outbox() for j in peers}
        self.received: dict[int, int] = {}  # per peer, the number of the last message that waits or was handled
        self.acknowledged: dict[int, int] = {}  # per peer, the number up to which a checkpoint holds its effects
        self.draining = False
        self._handled: dict[int, int] = {}  # per peer, the number of the last message that was handled
        self._sizes: dict[int, int] = {}  # of the clients that wait for the start
        self._queue: deque[Arrival] = deque()
        self._timers: dict[str, float] = {}  # of the server, those that run or wait for their turn
        self._effects: list[Effect] = []
        self._overdue = False  # it waits no longer for clients that are not there
        self._changed = False  # since the last checkpoint
        self._wanted = False  # a checkpoint, as soon as possible
        self._unsaved = 0  # updates
        self._marks: tuple[int, dict[int, int], dict[int, int]] | None = None  # what the one under way will have saved
        self._failed = False  # the last one could not be written, and it is not time yet to try again
        self.computing = False  # somebody is at the first message in the queue
        self._void = False

    def take(self) -> list[Effect]:
        """What is to be done, since the last time."""
        effects, self._effects = self._effects, []
        return effects

    # --- Beginning -------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin as soon as enough clients are there."""
        if self.rules.wait_for == 0:
            self._start()
        else:
            self._effects.append(StartTimer(BEGIN, self.rules.join_timeout))

    def _start(self) -> None:
        roster = {k: self._sizes[k] for k in sorted(self._sizes) if k in self.sessions}
        self.server = self._build(roster)
        for k in roster:
            self.ledger.entry(k).member = True
        self._effects += (StopTimer(BEGIN), Started(len(roster)))
        self._perform(self.server.start())
        self._go_on()

    def resume(self, numbers: Mapping[str, Any], vectors: Mapping[str, Array]) -> None:
        """Go on from a checkpoint."""
        self.server = server = self._build({})
        server.restore(State(numbers["server"], {name: vectors[name] for name in numbers["vectors"]}))
        self.ledger.restore(numbers["clients"])
        saved = self._unpacker(vectors)
        for j, box in numbers["outboxes"].items():
            self.outboxes[int(j)].restore(box, saved)
        self._handled = {int(j): sequence for j, sequence in numbers["handled"].items()}
        self.lineages = {int(j): lineage for j, lineage in numbers["lineages"].items()}
        self._queue.extendleft(Arrival(k, m, again=True) for k, m in reversed(saved.unpack(numbers["again"])))
        self.received, self.acknowledged = dict(self._handled), dict(self._handled)
        self.saved_version = server.version
        for k, entry in self.ledger.clients.items():
            if entry.member:
                self._effects.append(StartTimer(f"{AWAY}{k}", self.rules.client_timeout))
        for timer, seconds in numbers["timers"].items():
            self._start_timer(timer, seconds)
        self._go_on()

    def _unpacker(self, vectors: Mapping[str, Array]) -> Unpacker:
        assert self.server is not None
        return Unpacker(vectors, self.server.kinds(), Sizes(self.server.weights.snapshot().size, self.server.n))

    def _go_on(self) -> None:
        self._effects.append(StartTimer(SAVE, self.rules.checkpoint_seconds))
        self._changed = self._wanted = True
        self._rest()

    # --- Clients ---------------------------------------------------------------------------------------------------

    def admit(self, client: int, size: int, layout: bytes, learning: bytes) -> None:
        """Refuse a client that cannot take part."""
        rules = self.rules
        if client >= rules.clients:
            raise Refusal("agreement", f"client {client} of {rules.clients}, counted from 0")
        if layout != rules.layout:
            raise Refusal("agreement", "the layout of the weights is another one; use the same task everywhere")
        if learning != rules.learning:
            raise Refusal("agreement", "task, training or seed differ; use the same scenario everywhere")
        if not 0 < size <= rules.most_data:
            raise Refusal("agreement", f"a client with {size:,} data points; 1 to {rules.most_data:,} are allowed")

    def come(self, client: int, session: Any, size: int, holding: bytes | None = None) -> None:
        """A client that was admitted comes, or comes back; it may hold a task."""
        before = self.sessions.get(client)
        if before is not None:
            self._effects.append(Close(before, "replaced by a newer connection of the same client"))
        else:
            self._effects.append(StopTimer(f"{AWAY}{client}"))
        self.sessions[client] = session
        if self.server is not None:
            self._queue.append(Arrival(client, session=session, size=size, holding=holding))
            return
        self._sizes[client] = self.ledger.entry(client).size = size
        self._effects.append(Welcome(session, keep=False, saved_version=self.saved_version))
        if len(self.sessions) >= self.rules.wait_for or self._overdue:
            self._start()

    def part(self, client: int, session: Any) -> None:
        """A client's connection ended. It may come back."""
        if self._gone(client, session) and not self.draining:
            self._effects.append(StartTimer(f"{AWAY}{client}", self.rules.client_timeout))

    def leave(self, client: int, session: Any) -> None:
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
            self._queue.append(Arrival(client, Leave()))

    def check(self, client: int, ticket: bytes) -> Ticket:
        """Refuse an answer that begins to arrive, unless it is wanted."""
        return self.ledger.check(client, ticket)

    def answer(self, client: int, number: int, message: ClientMessage, receipt: Any = None) -> None:
        """The answer to a task has arrived in full."""
        self.ledger.take(client, number)
        self._queue.append(Arrival(client, message, number, receipt=receipt))

    # --- Other servers -----------------------------------------------------------------------------------------------

    def admit_peer(self, server: int, layout: bytes, deployment: bytes, lineage: str) -> int:
        """Refuse another server, or return the number of the last message that it need not repeat."""
        if server not in self.outboxes:
            raise Refusal("agreement", f"there is no other server {server} here")
        if layout != self.rules.layout or deployment != self.rules.deployment:
            raise Refusal("agreement", "the scenarios of the servers differ; use the same one everywhere")
        self.know(server, lineage)
        return self.received.get(server, 0)

    def know(self, server: int, lineage: str) -> None:
        """Refuse a server that is not the one that was known under this number."""
        if self.lineages.setdefault(server, lineage) != lineage:
            raise Refusal("lineage", f"server {server} has lost its state and began anew. {REMEDY}")

    def hear(self, server: int, sequence: int, message: PeerMessage, receipt: Any = None) -> None:
        """A message of another server has arrived in full. It may be one that came before a connection broke."""
        if sequence <= self.received.get(server, 0):
            if receipt is not None:
                self._effects.append(Done(receipt))
            return
        self.received[server] = sequence
        self._queue.append(Arrival(server, message, sequence, peer=True, receipt=receipt))

    def next_for(self, peer: int) -> Posted | None:
        """The next message for another server. It counts as sent over the present connection from now on."""
        box = self.outboxes[peer]
        posted = box.next()
        if posted is not None:
            box.sent = posted.sequence
        return posted

    # --- Timers ------------------------------------------------------------------------------------------------------

    def expire(self, timer: str) -> None:
        """A timer has run out."""
        if timer == SAVE:
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
        elif (name := timer.removeprefix(SERVERS)) in self._timers:
            self._queue.append(Arrival(self.id, timer=name))

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
        return bool(self._queue) and self.server is not None and not self.computing

    @property
    def light(self) -> bool:
        """Whether no vector is gone through for the first message in the queue."""
        arrival = self._queue[0]
        if arrival.message is None:
            return arrival.timer is None
        arrays = declaration(type(arrival.message)).arrays
        return not arrays and not isinstance(arrival.message, Leave) and self.work() is Work.NOTHING

    def work(self) -> Work:
        """How heavy the first message in the queue is."""
        assert self.server is not None
        arrival = self._queue[0]
        if arrival.timer is not None:
            return self.server.work_of(arrival.timer)
        if arrival.message is None or self._came_back(arrival):
            return Work.NOTHING
        return self.server.work(arrival.sender, arrival.message)

    def _came_back(self, arrival: Arrival) -> bool:
        """Whether a client that was given up came back before its turn came."""
        return isinstance(arrival.message, Leave) and not arrival.again and arrival.sender in self.sessions

    def compute(self) -> list[Action]:
        """Let the server handle the first message in the queue. Nothing of it counts before :meth:`finish`."""
        assert self.server is not None
        self.computing = True
        arrival = self._queue[0]
        if arrival.timer is not None:
            return self.server.expire(arrival.timer)
        self._void = self._came_back(arrival)
        if arrival.message is None or self._void:
            return []
        return self.server.handle(arrival.sender, arrival.message)

    def finish(self, actions: list[Action]) -> None:
        """Take note of the message that was handled, and of what the server wants done."""
        self.computing = False
        arrival = self._queue[0]
        if arrival.again:
            pass  # it was taken note of when it was served first
        elif arrival.timer is not None:
            del self._timers[arrival.timer]
        elif arrival.session is not None:
            actions = self._welcome_back(arrival)
        elif arrival.peer:
            self._handled[arrival.sender] = arrival.number
            self._wanted = True
        elif arrival.number:
            self.ledger.entry(arrival.sender).applied = arrival.number
        elif isinstance(arrival.message, Leave) and not self._void:
            self.ledger.entry(arrival.sender).member = False
        self._changed = True
        self._perform(actions)
        self._queue.popleft()
        for action in actions:
            if isinstance(action, ServeAgain):
                self._queue.extendleft(Arrival(k, message, again=True) for k, message in reversed(action.messages))
        if arrival.receipt is not None:
            self._effects.append(Done(arrival.receipt))
        self._rest()

    def _welcome_back(self, arrival: Arrival) -> list[Action]:
        """A client came: does it go on with what it holds, wait for its next task, or join?"""
        assert self.server is not None
        k = arrival.sender
        if self.sessions.get(k) is not arrival.session:
            return []  # and went
        entry = self.ledger.entry(k)
        entry.size = arrival.size
        keep = False
        if arrival.holding is not None:
            try:
                self.ledger.check(k, arrival.holding)
                keep = entry.member
            except Refusal as refusal:
                if refusal.reason == "unknown-task":
                    self._effects.append(Refused(k, refusal))
        self._effects.append(Welcome(arrival.session, keep, self.saved_version))
        if keep or (entry.member and entry.owed):
            return []
        entry.member = True
        return self.server.handle(k, Join(arrival.size))

    def _perform(self, actions: Iterable[Action]) -> None:
        for action in actions:
            if isinstance(action, ToClient):
                self._give(action.client, action.message)
            elif isinstance(action, Record):
                self._effects.append(WriteDown(action.fact, len(self._queue)))
                if type(action.fact) is UpdateApplied:
                    self._unsaved += 1
            elif isinstance(action, ToServer):
                assert isinstance(action.message, PeerMessage)
                self.outboxes[action.server].post(action.message)
                self._wanted = True
            elif isinstance(action, StartTimer):
                self._start_timer(action.timer, action.seconds)
            elif isinstance(action, StopTimer):
                self._stop_timer(action.timer)
                self._effects.append(StopTimer(f"{SERVERS}{action.timer}"))

    def _give(self, k: int, message: ServerMessage) -> None:
        """Give a client a task. If it is not there, it will ask when it comes back."""
        ticket = self.ledger.give(k, getattr(message, "age", 0.0), getattr(message, "version", 0))
        session = self.sessions.get(k)
        if session is not None:
            self._effects.append(Give(session, ticket, message, self.saved_version))

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
        if self._wanted and self._marks is None and not self._failed and not self.computing:
            self._save()

    def _save(self) -> None:
        server = self.server
        assert server is not None
        self._wanted, self._changed, self._unsaved = False, False, 0
        self._marks = server.version, {j: box.last for j, box in self.outboxes.items()}, dict(self._handled)
        state = server.state()
        vectors = dict(state.vectors)
        numbers = {
            "id": self.id,
            "server": state.numbers,
            "vectors": list(state.vectors),
            "clients": self.ledger.numbers(),
            "outboxes": {str(j): box.numbers(f"outbox-{j}", vectors) for j, box in self.outboxes.items()},
            "handled": {str(j): sequence for j, sequence in self._handled.items()},
            "lineages": {str(j): lineage for j, lineage in self.lineages.items()},
            "again": pack([(a.sender, a.message) for a in self._queue if a.again], "again", vectors),
            "timers": dict(self._timers),
        }
        self._effects.append(Save(numbers, vectors))

    def saved(self) -> None:
        """The checkpoint is on the disk."""
        assert self._marks is not None
        (self.saved_version, sent, handled), self._marks = self._marks, None
        for j, sequence in sent.items():
            if self.outboxes[j].commit(sequence):
                self._effects.append(Tell(j))
        for j, sequence in handled.items():
            if sequence > self.acknowledged.get(j, 0):
                self._effects.append(Acknowledge(j, sequence))
        self.acknowledged = handled
        self._rest()

    def save_failed(self) -> None:
        """It could not be written. It is tried again, but not at once: a full disk stays full for a while."""
        self._marks, self._changed, self._failed = None, True, True
        self._effects.append(StartTimer(RETRY, self.rules.save_retry))
