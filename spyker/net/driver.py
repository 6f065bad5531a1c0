"""The driver of a node in a server process: threads, a disk, timers, a run record and metrics.

Nothing is decided here. :meth:`Driver.deliver` passes an event to the node, carries out the effects, and lets the node
handle its inbox. Messages with large models are handled in a thread, so that streams go on in the meantime.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from spyker.net import spyker_pb2 as pb
from spyker.net.buffer_pool import BufferPool
from spyker.net.checkpoints import Checkpoint, Checkpoints
from spyker.net.event_log import EventLog
from spyker.net.frames import PROTOCOL
from spyker.net.json_log import JsonLog
from spyker.net.metrics import Metrics
from spyker.net.rate_limited_log import RateLimitedLog
from spyker.net.recorder import Recorder
from spyker.net.wire import fill
from spyker.node.control_messages import ControlMessage
from spyker.node.effects import (
    AcknowledgePeer,
    ClientRejected,
    CloseSession,
    Completed,
    Effect,
    MembershipChanged,
    NodeStarted,
    SaveCheckpoint,
    SendControl,
    SendPeer,
    SendTask,
    StopProcess,
    TellSaved,
    WelcomeClient,
    WriteFact,
)
from spyker.node.events import (
    CheckpointFailed,
    CheckpointRequested,
    CheckpointSaved,
    Event,
    Handled,
    HandleNext,
    Resume,
    Start,
    TimerFired,
)
from spyker.node.node import Node
from spyker.node.node_driver import NodeDriver
from spyker.node.rejection import Rejection
from spyker.protocol.facts import (
    ClientAtTwoServers,
    ClientQuarantined,
    Fact,
    ModelRestored,
    PeerSuspected,
    PeerTrusted,
    RateHalved,
    RateRestored,
    SavingFailed,
    SavingResumed,
    ServerDuplicated,
    SumDiscarded,
    UpdateDropped,
)
from spyker.protocol.messages import Action
from spyker.vectors import Vector

CHECKPOINT_FAILED = "checkpoint-failed"
MOST_CONTROL = 64  # control messages that wait for a connection; older ones are of no use
IN_A_THREAD = 1 << 20  # parameters; mixing fewer takes less time than starting a thread


class Driver(NodeDriver):
    """Drives one node, on one event loop."""

    def __init__(
        self,
        node: Node,
        *,
        parameters: int,
        buffers: BufferPool,
        layout: dict[str, Any],
        identity: dict[str, Any],
        checkpoints: Checkpoints,
        recorder: Recorder,
        metrics: Metrics,
        log: JsonLog,
        event_log: EventLog | None = None,
    ) -> None:
        """Checkpoints hold the model's ``layout``, so that an export needs no task, and the server's ``identity``."""
        super().__init__(node)
        self.buffers, self.checkpoints = buffers, checkpoints
        self.layout, self.identity = layout, identity
        self.recorder, self.metrics, self.log, self.event_log = recorder, metrics, log, event_log
        self.limited_log = RateLimitedLog(log)
        self.names: dict[int, str] = {}  # of clients, as their certificates say
        self.loop = asyncio.get_running_loop()
        self.started = asyncio.Event()
        self.failed: asyncio.Future[None] = self.loop.create_future()
        self.news: dict[int, asyncio.Event] = defaultdict(asyncio.Event)  # there is something to send to a peer
        self.acks: dict[int, asyncio.Event] = defaultdict(asyncio.Event)  # or to acknowledge
        self.control: dict[int, deque[ControlMessage]] = defaultdict(lambda: deque(maxlen=MOST_CONTROL))
        self.control_news: dict[int, asyncio.Event] = defaultdict(asyncio.Event)  # there is a control message
        self.stopped: asyncio.Future[StopProcess] = self.loop.create_future()
        self.told_of_duplicate = asyncio.Event()  # another server knows that this process is not the only one
        self.replaced_clients: Callable[[], list[dict[str, Any]]] = list  # for operators; the port of clients knows
        self.members_changed: Callable[[MembershipChanged], None] = lambda members: None
        self._large = parameters >= IN_A_THREAD
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._idle: list[Callable[[], None]] = []
        self._progress = asyncio.Event()
        self._unsaved: set[str] = set()  # why checkpoints failed, since the last that did not
        self._mixer = ThreadPoolExecutor(1, "mix")
        self._disk = ThreadPoolExecutor(1, "checkpoint")

    def now(self) -> float:
        """Return the time on the clock that events are stamped with."""
        return time.monotonic()

    def begin(self) -> None:
        """Start without a checkpoint."""
        self.log.info("waiting", clients=self.node.options.min_clients)
        self.deliver(Start(now=self.now()))

    def resume(self, checkpoint: Checkpoint) -> None:
        """Start from a checkpoint."""
        node = self.node
        self.step(Resume(checkpoint.numbers, checkpoint.vectors, now=self.now()))
        assert node.server is not None
        version, age = node.server.version, node.server.age
        self.recorder.restore(checkpoint.numbers["recorder"])
        lost = self.recorder.resume(version)
        self.metrics.lost(lost)
        self.log.info("server-resumed", checkpoint=checkpoint.number, version=version, age=age, lost_updates=lost)
        self.started.set()
        self.go_on()

    # --- One message at a time -------------------------------------------------------------------------------------

    def step(self, event: Event) -> None:
        """Pass an event to the node; if there is an event log, append the event first."""
        if self.event_log is not None:
            self.event_log.append(event)
        super().step(event)

    def deliver(self, event: Event) -> None:
        """Pass an event to the node, carry out what follows, and handle what waits.

        Raises:
            Rejection: if the node has rejected the event. Any other error ends the process.

        """
        try:
            self.step(event)
        except Rejection:
            self.go_on()
            raise
        except Exception as error:
            self.fail(error)
        self.go_on()

    def go_on(self) -> None:
        """Carry out the node's effects, and handle what waits until nothing is left or a thread has to work."""
        node = self.node
        if self.failed.done():
            return
        try:
            self.recorder.waiting(node.waiting)
            self.carry_out()
            self._note_token()
            while node.ready:
                if self._large and not node.light:
                    self.step(HandleNext(now=self.now()))
                    computed = self.loop.run_in_executor(self._mixer, node.compute)
                    computed.add_done_callback(self._computed)
                    return
                self.handle_next()
                self.carry_out()
                self._note_token()
        except Exception as error:
            self.fail(error)

    def _computed(self, computed: asyncio.Future[list[Action]]) -> None:
        if computed.cancelled() or self.failed.done():
            return
        try:
            self.step(Handled(computed.result(), now=self.now()))
            while self._idle:
                self._idle.pop(0)()
        except Exception as error:
            self.fail(error)
            return
        self.go_on()
        self._progress.set()

    def _note_token(self) -> None:
        server = self.node.server
        if server is not None and not self.node.handling:
            self.metrics.token(held=server.has_token)

    def fail(self, error: Exception) -> None:
        """End the process without saving: the state cannot be trusted any more."""
        if not self.failed.done():
            self.failed.set_exception(error)

    def perform(self, effect: Effect) -> None:
        """Carry out an effect."""
        match effect:
            case WriteFact(fact, queue):
                self._log_fact(fact)
                self.recorder.fact(fact, queue)
                self.metrics.fact(fact, queue)
            case SendTask():
                frame = pb.Frame()
                frame.assignment.task_token, frame.assignment.saved_version = effect.task_token, effect.saved_version
                frame.assignment.number, frame.assignment.saved = effect.number, effect.saved
                arrays = fill(frame.assignment.content, effect.message)
                effect.session.give(frame.SerializeToString(), arrays, effect.message.kind)
            case Completed():
                effect.receipt()
            case SendPeer():
                self.news[effect.peer].set()
            case AcknowledgePeer():
                self.acks[effect.peer].set()
            case SendControl():
                self.control[effect.peer].append(effect.message)
                self.control_news[effect.peer].set()
            case MembershipChanged():
                self.log.info("members", epoch=effect.view.epoch, servers=sorted(effect.view.members))
                self.members_changed(effect)
            case StopProcess():
                if not self.stopped.done():
                    self.stopped.set_result(effect)
            case TellSaved(session, saved, ask):
                session.note(pb.Frame(saved=pb.Saved(number=saved, ask=ask)).SerializeToString())
            case WelcomeClient(session, keep, saved_version, received, saved, ask, booked):
                welcome = pb.Welcome(
                    protocol=PROTOCOL, server=self.node.id,
                    keep=keep, saved_version=saved_version, received=received, saved=saved, ask=ask, booked=booked,
                )  # fmt: skip
                session.note(pb.Frame(welcome=welcome).SerializeToString())
            case CloseSession():
                effect.session.close(effect.reason)
            case ClientRejected():
                self.refused(effect.client, effect.rejection)
            case NodeStarted():
                self.log.info("started", clients=effect.clients)
                self.recorder.begin(time.time())
                self.started.set()

    def _log_fact(self, fact: Fact) -> None:
        """Log facts that an operator should see; what led to them is in the run record."""
        match fact:
            case PeerSuspected() | PeerTrusted():
                self.log.warning(fact.kind, peer=fact.peer, **self._reason(fact.peer))
            case ServerDuplicated(peer=peer, reason=reason):
                self.log.warning(fact.kind, peer=peer, reason=reason)
            case ClientAtTwoServers(client=client, peer=peer):
                self.log.warning(fact.kind, **self.named(client), peer=peer)
            case SavingFailed():
                self.log.error(
                    fact.kind,
                    error="no checkpoint reaches the disk, so the other servers continue without this one. Updates "
                    "are applied in memory and lost in a crash. Make the state folder writable, or free space",
                )
            case SavingResumed():
                self.log.warning(fact.kind)
            case ClientQuarantined(client=client, reason=reason, seconds=seconds):
                self.log.warning(fact.kind, **self.named(client), reason=reason, seconds=seconds)
            case UpdateDropped(client=client):
                self.limited_log.say("warning", fact.kind, "rate", client, **self.named(client))
            case SumDiscarded(helper=helper, clients=clients, reason=reason):
                self.limited_log.say(
                    "warning", fact.kind, "masking", helper, helper=helper, clients=clients, detail=reason
                )
            case RateHalved(norm=norm, rate=rate):
                self.log.warning(fact.kind, norm=norm, rate=rate)
            case RateRestored(rate=rate):
                self.log.warning(fact.kind, rate=rate)
            case ModelRestored(norm=norm, good_norm=good_norm, gain=gain):
                self.log.warning(fact.kind, norm=norm, good_norm=good_norm, gain=gain)

    def _reason(self, peer: int) -> dict[str, Any]:
        """Return the field of a log line about a server that is suspected for another reason than its silence."""
        membership = self.node.membership
        if peer in membership.cannot_save:
            return {"reason": "cannot save"}
        return {"reason": "connection refused"} if membership.failure_detector.ended([peer]) else {}

    def refused(self, client: int | None, rejection: Rejection) -> None:
        """Log and count a rejection."""
        self.metrics.rejected(rejection.reason)
        self.limited_log.say(
            "warning", "rejected", rejection.reason, client, **self.named(client), detail=str(rejection)
        )

    def closed_connection(self, reason: str, host: str) -> None:
        """Log and count a connection that was closed because nobody authenticated on it."""
        self.metrics.rejected(reason)
        self.limited_log.say("warning", "connection-closed", reason, host, address=host)

    def named(self, client: int | None) -> dict[str, Any]:
        """Return the fields of a log line about a client: its number and, if it has shown a certificate, its name."""
        name = None if client is None else self.names.get(client)
        return {"client": client} if name is None else {"client": client, "name": name}

    def start_timer(self, timer: str, seconds: float) -> None:
        """Start or restart a timer."""
        self.stop_timer(timer)
        self._timers[timer] = self.loop.call_later(seconds, self._expire, timer)

    def stop_timer(self, timer: str) -> None:
        """Stop a timer, if it runs."""
        running = self._timers.pop(timer, None)
        if running is not None:
            running.cancel()

    def _expire(self, timer: str) -> None:
        self._timers.pop(timer, None)
        self.deliver(TimerFired(timer, now=self.now()))

    # --- Between two messages --------------------------------------------------------------------------------------

    async def snapshot(self) -> Vector:
        """Return the model as it is between two messages.

        Raises:
            Exception: the error of the node, if it fails before the present message is handled.

        """
        taken: asyncio.Future[Vector] = self.loop.create_future()

        def take() -> None:
            assert self.node.server is not None
            if not taken.done():
                taken.set_result(self.node.server.weights.snapshot())

        if self.node.handling:
            self._idle.append(take)
        else:
            take()
        await asyncio.wait((taken, self.failed), return_when=asyncio.FIRST_COMPLETED)
        if not taken.done():
            self.failed.result()
        return taken.result()

    def save(self, checkpoint: SaveCheckpoint) -> None:
        """Let a thread write a checkpoint."""
        about = {"layout": self.layout, "identity": self.identity, "recorder": self.recorder.numbers()}
        numbers = {**checkpoint.numbers, **about}
        began = time.monotonic()
        done = self.loop.run_in_executor(self._disk, self.checkpoints.save, numbers, checkpoint.vectors)
        done.add_done_callback(lambda future: self._saved(future, began))

    def _saved(self, done: asyncio.Future[int], began: float) -> None:
        if done.cancelled() or self.failed.done():
            return
        error = done.exception()
        if error is not None:
            self.limited_log.say("error", CHECKPOINT_FAILED, type(error).__name__, error=repr(error))
            self._unsaved.add(type(error).__name__)
            self.deliver(CheckpointFailed(now=self.now()))
        else:
            while self._unsaved:
                self.limited_log.over(CHECKPOINT_FAILED, self._unsaved.pop())
            self.deliver(CheckpointSaved(now=self.now()))
            self.metrics.saved(self.node.saved_version, time.monotonic() - began)
        self._progress.set()

    async def settle(self) -> None:
        """Wait until everything that has arrived is handled and saved, or the node has failed.

        The caller makes sure that nothing more arrives.
        """
        while not self.node.settled and not self.failed.done():
            self._progress.clear()
            self.deliver(CheckpointRequested(now=self.now()))
            if self.node.settled:
                return
            progress = asyncio.ensure_future(self._progress.wait())
            await asyncio.wait((progress, self.failed), return_when=asyncio.FIRST_COMPLETED)
            progress.cancel()

    def close(self) -> None:
        """Stop timers and threads, and close the event log."""
        if self.event_log is not None:
            self.event_log.close()
        for timer in list(self._timers):
            self.stop_timer(timer)
        self._mixer.shutdown()
        self._disk.shutdown()
