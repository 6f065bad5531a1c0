"""What one server process does: it drives one server of the protocol, one message at a time, in the order of arrival.

Theory of operation
-------------------
Everything that can happen to the server is put into one queue: a client's answer, a client that comes or goes, a word
from another server. The first in the queue is served, what it causes is performed, then comes the next. Large models
are mixed in a thread, so that other streams go on in the meantime; nobody touches the server until it is done.

Between two messages, and only there, the server's state is taken: for a checkpoint, which a thread writes to the disk
while the server goes on, or for an evaluation. Messages that the server wants served again belong to the message that
caused it: no state is taken before they are served, too.

Clients are answered at once. What other servers are told waits in an outbox for the next checkpoint; see
:mod:`~spyker.deploy.peers`.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol

from spyker.deploy import spyker_pb2 as pb
from spyker.deploy.buffers import Buffers
from spyker.deploy.checkpoints import Checkpoint, Checkpoints
from spyker.deploy.config import Config, layout_numbers, learners
from spyker.deploy.frames import PROTOCOL, Refusal
from spyker.deploy.log import Log
from spyker.deploy.metrics import Metrics
from spyker.deploy.peers import Outbox
from spyker.deploy.state import from_checkpoint, to_checkpoint
from spyker.deploy.tally import Tally
from spyker.deploy.tasks import Ledger
from spyker.learn.task import Task
from spyker.protocol.messages import (
    Action,
    Age,
    ClientMessage,
    Join,
    Leave,
    Model,
    PeerMessage,
    Record,
    ServeAgain,
    ToClient,
    Token,
    ToServer,
    Update,
)
from spyker.protocol.server import Server, Setup
from spyker.vectors import Vector

IN_A_THREAD = 1 << 20  # parameters; mixing fewer takes less time than telling a thread to do it
WEIGHTLESS = (Join, Age, Token)  # whatever is done about these, no vector is gone through
SAVE_RETRY_SECONDS = 1.0


class Session(Protocol):
    """The connection of a client, as the host sees it."""

    def give(self, body: bytes, weights: Vector | None) -> None:
        """Send this; a model that has not been sent yet gives way to a newer one."""

    def close(self, reason: str) -> None:
        """End it."""


class Arrival(NamedTuple):
    """Something that waits for its turn."""

    sender: int
    message: ClientMessage | PeerMessage | None = None
    number: int = 0
    """Of the task that is answered, or of the peer's message."""
    greeting: tuple[Session, int, pb.Ticket | None] | None = None
    """A client that comes: its connection, the size of its data, and the task that it holds."""
    done: Callable[[], None] | None = None
    """To be called when the message has been dealt with."""
    peer: bool = False


class Host:
    """Drives a server of the protocol."""

    def __init__(
        self,
        config: Config,
        task: Task,
        initial: Vector,
        *,
        ledger: Ledger,
        checkpoints: Checkpoints,
        tally: Tally,
        metrics: Metrics,
        log: Log,
    ) -> None:
        self.config, self.task = config, task
        self.layout = layout_numbers(task)  # so that spyker export needs no task
        self._initial: Vector | None = initial  # until the server has it
        self.id = config.deploy.server
        self.ledger, self.checkpoints = ledger, checkpoints
        self.tally, self.metrics, self.log = tally, metrics, log
        self.loop = asyncio.get_running_loop()
        self.server: Server | None = None  # not before it starts
        self.sessions: dict[int, Session] = {}
        self.sizes: dict[int, int] = {}  # of the clients that wait for the start
        self.outboxes: dict[int, Outbox] = {}
        self.received: dict[int, int] = {}  # per peer, the number of the last message that waits or was handled
        self.handled: dict[int, int] = {}  # per peer, the number of the last message that was handled
        self.lineages: dict[int, str] = {}  # per peer, which life of its it told us of
        self.buffers = Buffers(initial.size, int(config.deploy.receive_memory_mb * 1e6))
        self._models = Buffers(initial.size, int(config.deploy.receive_memory_mb * 1e6))  # for what mixes result in
        self.saved_version = 0
        self.acknowledged: dict[int, int] = {}  # per peer, the number up to which a checkpoint holds its effects
        self.on_saved: list[Callable[[], None]] = []
        self.started = asyncio.Event()
        self.failed: asyncio.Future[None] = self.loop.create_future()
        self.draining = False
        self._queue: deque[Arrival] = deque()
        self._again = 0  # messages at the head of the queue that belong to one handled already
        self._busy = False
        self._changed = False  # since the last checkpoint
        self._wanted = False  # a checkpoint, as soon as possible
        self._saving = False
        self._unsaved = 0  # updates
        self._idle: list[Callable[[], None]] = []
        self._absences: dict[int, asyncio.TimerHandle] = {}
        self._large = initial.size >= IN_A_THREAD
        self._mixer = ThreadPoolExecutor(1, "mix")
        self._disk = ThreadPoolExecutor(1, "checkpoint")

    # --- Beginning -------------------------------------------------------------------------------------------------

    def build(self, roster: dict[int, int]) -> Server:
        """The server of the protocol, with the clients that it begins with."""
        scenario = self.config.scenario
        rosters: tuple[dict[int, int], ...] = tuple({} for _ in range(learners(scenario)))
        if self.id < len(rosters):
            rosters[self.id].update(roster)
        assert self._initial is not None
        setup = Setup(
            rosters,
            self._initial,
            scenario.training.rate,
            scenario.parameters,
            scenario.seed,
            self.task.mix,
            lambda vector: self._models.vector(),
        )
        self._initial = None  # nobody else needs it, and it may be large
        return scenario.chosen.build(self.id, setup)

    def start(self) -> None:
        """Begin with the clients that are there."""
        roster = {k: self.sizes[k] for k in sorted(self.sizes) if k in self.sessions}
        self.server = self.build(roster)
        for k in roster:
            self.ledger.entry(k).member = True
        self.log.info("started", clients=len(roster))
        self.tally.begin(time.time())
        self._perform(self.server.start())
        self._begin()

    def resume(self, checkpoint: Checkpoint) -> None:
        """Go on from a checkpoint."""
        self.server = self.build({})
        from_checkpoint(self, checkpoint)
        self.saved_version = self.server.version
        self.acknowledged = dict(self.handled)
        self.received = dict(self.handled)
        lost = self.tally.resume(self.server.version)
        self.metrics.lost(lost)
        self.metrics.token(held=getattr(self.server, "token", None) is not None)
        self.log.info(
            "resumed", checkpoint=checkpoint.number, version=self.server.version, age=self.server.age, lost=lost
        )
        for k, entry in self.ledger.clients.items():
            if entry.member:
                self._note_absence(k)
        self._begin()

    def _begin(self) -> None:
        self.started.set()
        self._changed = True
        self.save_soon()
        self._serve()

    # --- What arrives ----------------------------------------------------------------------------------------------

    def greet(self, k: int, session: Session, size: int, holding: pb.Ticket | None) -> None:
        """A client comes, or comes back."""
        before = self.sessions.get(k)
        if before is not None:
            before.close("replaced by a newer connection of the same client")
        self.sessions[k] = session
        self.metrics.clients(len(self.sessions))
        timer = self._absences.pop(k, None)
        if timer is not None:
            timer.cancel()
        if self.server is None:
            self.sizes[k] = size
            self.ledger.entry(k).size = size
            session.give(self._welcome(keep=False), None)
        else:
            self.arrive(Arrival(k, greeting=(session, size, holding)))

    def part(self, k: int, session: Session) -> None:
        """A client's connection ended. It may come back."""
        if self.sessions.get(k) is session:
            del self.sessions[k]
            self.metrics.clients(len(self.sessions))
            self.sizes.pop(k, None)
            if not self.draining:
                self._note_absence(k)

    def leave(self, k: int, session: Session) -> None:
        """A client says that it will not come back."""
        if self.sessions.get(k) is session:
            del self.sessions[k]
            self.metrics.clients(len(self.sessions))
            self.sizes.pop(k, None)
            self.give_up(k)

    def give_up(self, k: int) -> None:
        """Count a client among ours no more."""
        self._absences.pop(k, None)
        if self.server is not None and k not in self.sessions:
            self.arrive(Arrival(k, Leave()))

    def _note_absence(self, k: int) -> None:
        if k not in self._absences:
            self._absences[k] = self.loop.call_later(self.config.deploy.client_timeout, self.give_up, k)

    def answer(self, k: int, ticket: pb.Ticket, weights: Vector, done: Callable[[], None] | None) -> None:
        """A client's answer has arrived in full."""
        self.ledger.take(k, ticket)
        self.arrive(Arrival(k, Update(weights, ticket.age, ticket.version), ticket.number, done=done))

    def arrive(self, arrival: Arrival) -> None:
        """Whatever it is, it waits for its turn."""
        self._queue.append(arrival)
        self.tally.waiting(len(self._queue))
        if not self._busy and self.server is not None:
            self._serve()

    # --- One message at a time -------------------------------------------------------------------------------------

    def _serve(self) -> None:
        """Serve what waits, until there is nothing left or a thread has to do something."""
        server = self.server
        assert server is not None
        try:
            while self._queue and not self._busy:
                arrival = self._queue[0]
                message = arrival.message
                if message is None:
                    self._effect(arrival, self._welcome_back(arrival))
                elif isinstance(message, Leave) and arrival.sender in self.sessions:
                    self._effect(arrival, [])  # it came back before its turn came
                elif self._large and not isinstance(message, WEIGHTLESS):
                    self._busy = True
                    done = self.loop.run_in_executor(self._mixer, server.handle, arrival.sender, message)
                    done.add_done_callback(self._handled)
                else:
                    self._effect(arrival, server.handle(arrival.sender, message))
        except Exception as error:
            self._fail(error)

    def _handled(self, done: asyncio.Future[list[Action]]) -> None:
        self._busy = False
        try:
            self._effect(self._queue[0], done.result())
        except Exception as error:
            self._fail(error)
            return
        self._serve()

    def _fail(self, error: Exception) -> None:
        """The state cannot be trusted any more: end, and save nothing."""
        self._busy = True
        if not self.failed.done():
            self.failed.set_exception(error)

    def _effect(self, arrival: Arrival, actions: list[Action]) -> None:
        """Take note of a message that was handled, and perform what it asked for."""
        if self._again:
            self._again -= 1
        elif arrival.peer:
            self.handled[arrival.sender] = arrival.number
            self._wanted = True
        elif arrival.number:
            self.ledger.entry(arrival.sender).applied = arrival.number
        elif isinstance(arrival.message, Leave) and arrival.sender not in self.sessions:
            self.ledger.entry(arrival.sender).member = False
        self._changed = True
        self._perform(actions)
        self._queue.popleft()
        for action in actions:
            if isinstance(action, ServeAgain):
                self._queue.extendleft(Arrival(k, message) for k, message in reversed(action.messages))
                self._again += len(action.messages)
        if arrival.done is not None:
            arrival.done()
        if not self._again:
            self._rest()

    def _welcome_back(self, arrival: Arrival) -> list[Action]:
        """A client came: does it go on with what it holds, wait for its next task, or join?"""
        assert arrival.greeting is not None
        assert self.server is not None
        k = arrival.sender
        session, size, holding = arrival.greeting
        if self.sessions.get(k) is not session:
            return []  # and went
        entry = self.ledger.entry(k)
        entry.size = size
        keep = False
        if holding is not None:
            try:
                self.ledger.check(k, holding)
                keep = entry.member
            except Refusal as refusal:
                if refusal.reason == "unknown-task":
                    self.refused(k, refusal)
        session.give(self._welcome(keep=keep), None)
        if keep or (entry.member and entry.owed):
            return []
        entry.member = True
        return self.server.handle(k, Join(size))

    def _welcome(self, *, keep: bool) -> bytes:
        welcome = pb.Welcome(protocol=PROTOCOL, server=self.id, keep=keep, saved_version=self.saved_version)
        return pb.Frame(welcome=welcome).SerializeToString()

    def refused(self, sender: int | None, refusal: Refusal) -> None:
        """Something was refused at the border: say so and count it."""
        self.metrics.refused(refusal.reason)
        self.log.warning("refused", client=sender, reason=refusal.reason, detail=str(refusal))

    # --- What the server asks for ----------------------------------------------------------------------------------

    def _perform(self, actions: Iterable[Action]) -> None:
        for action in actions:
            if isinstance(action, ToClient):
                self._give(action.client, action.message)
            elif isinstance(action, Record):
                self._unsaved += self.tally.fact(action.fact, len(self._queue))
                self.metrics.fact(action.fact, len(self._queue))
            elif isinstance(action, ToServer):
                self.outboxes[action.server].post(action.message)  # type: ignore[arg-type]
                self._wanted = True

    def _give(self, k: int, model: Model) -> None:
        """Give a client a task. If it is not there, it will ask when it comes back."""
        ticket = self.ledger.give(k, model.age, model.version)
        session = self.sessions.get(k)
        if session is not None:
            task = pb.Task(ticket=ticket, rate=model.rate, saved_version=self.saved_version)
            session.give(pb.Frame(task=task).SerializeToString(), model.weights)

    # --- Between two messages --------------------------------------------------------------------------------------

    def when_idle(self, call: Callable[[], None]) -> None:
        """Call this as soon as no message is being handled."""
        self._idle.append(call)
        if not self._busy and not self._again and self.server is not None:
            self._rest()

    def _rest(self) -> None:
        while self._idle:
            self._idle.pop(0)()
        if self._unsaved >= self.config.deploy.checkpoint_updates:
            self._wanted = True
        if self._wanted and not self._saving:
            self._save()

    def save_soon(self) -> None:
        """Take a checkpoint, if anything happened since the last."""
        if self._changed:
            self._wanted = True
            self.when_idle(lambda: None)

    def _save(self) -> None:
        """Take the state now and let a thread write it. What happens meanwhile is for the next checkpoint."""
        assert self.server is not None
        self._saving, self._wanted, self._changed, self._unsaved = True, False, False, 0
        numbers, vectors = to_checkpoint(self)
        marks = self.server.version, {j: box.last for j, box in self.outboxes.items()}, dict(self.handled)
        began = time.monotonic()
        done = self.loop.run_in_executor(self._disk, self.checkpoints.save, numbers, vectors)
        del numbers, vectors
        done.add_done_callback(lambda future: self._saved(future, began, *marks))

    def _saved(
        self, done: asyncio.Future[int], began: float, version: int, sent: dict[int, int], handled: dict[int, int]
    ) -> None:
        self._saving = False
        if done.cancelled():
            return
        error = done.exception()
        if error is not None:
            self.log.error("checkpoint-failed", error=repr(error))
            self.loop.call_later(SAVE_RETRY_SECONDS, self.save_soon)
            self._changed = True
            return
        self.saved_version = version
        self.acknowledged = handled
        self.metrics.saved(version, time.monotonic() - began)
        for j, sequence in sent.items():
            self.outboxes[j].commit(sequence)
        for call in self.on_saved:
            call()
        if self._wanted:
            self.when_idle(lambda: None)

    async def settle(self) -> None:
        """Wait until everything that arrived has been served and saved. Nothing more must arrive."""
        while self._queue or self._busy or self._saving or self._changed:
            if not self._saving:
                self.save_soon()
            if self.failed.done():
                return
            await asyncio.sleep(0.005)

    def close(self) -> None:
        """Let go of the threads."""
        self._mixer.shutdown()
        self._disk.shutdown()

    def summary(self, *, finished: bool) -> dict[str, Any] | None:
        """The server's own numbers, for the record."""
        if self.server is None:
            return None
        members = sum(entry.member for entry in self.ledger.clients.values())
        return self.tally.summary(self.server, members, finished=finished)
