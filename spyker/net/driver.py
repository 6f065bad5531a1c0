"""Carries out what a node decides: threads for what takes long, a disk, timers, a record and metrics.

Nothing is decided here. The node is told things through :meth:`Driver.tell`, which then performs what it wants done and
has it serve what waits. Large models are mixed in a thread, so that streams go on in the meantime.
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
    WelcomeClient,
    WriteFact,
)
from spyker.node.node import Node
from spyker.node.rejection import Rejection
from spyker.protocol.facts import ClientQuarantined, ModelRestored, PeerSuspected, PeerTrusted, RateHalved
from spyker.protocol.messages import Action, StartTimer, StopTimer
from spyker.vectors import Vector

CHECKPOINT_FAILED = "checkpoint-failed"
MOST_CONTROL = 64  # that wait for a connection; older ones are of no use
IN_A_THREAD = 1 << 20  # parameters; mixing fewer takes less time than telling a thread to do it


class Driver:
    """Drives one node. Lives on one event loop."""

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
    ) -> None:
        """Checkpoints hold ``layout``, which says what a model's numbers mean, so that an export needs no task, and
        ``identity``, whose they are.
        """
        self.node, self.buffers, self.checkpoints = node, buffers, checkpoints
        self.layout, self.identity = layout, identity
        self.recorder, self.metrics, self.log = recorder, metrics, log
        self.limited_log = RateLimitedLog(log)
        self.loop = asyncio.get_running_loop()
        self.started = asyncio.Event()
        self.failed: asyncio.Future[None] = self.loop.create_future()
        self.news: dict[int, asyncio.Event] = defaultdict(asyncio.Event)  # there is something to tell another server
        self.acks: dict[int, asyncio.Event] = defaultdict(asyncio.Event)  # or to acknowledge
        self.control: dict[int, deque[ControlMessage]] = defaultdict(lambda: deque(maxlen=MOST_CONTROL))
        self.stopped: asyncio.Future[StopProcess] = self.loop.create_future()
        self.members_changed: Callable[[MembershipChanged], None] = lambda members: None
        self._large = parameters >= IN_A_THREAD
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._idle: list[Callable[[], None]] = []
        self._progress = asyncio.Event()
        self._unsaved: set[str] = set()  # why checkpoints failed, since the last that did not
        self._mixer = ThreadPoolExecutor(1, "mix")
        self._disk = ThreadPoolExecutor(1, "checkpoint")

    def begin(self) -> None:
        """Begin anew."""
        self.log.info("waiting", clients=self.node.rules.wait_for)
        self.tell(self.node.begin)

    def resume(self, checkpoint: Checkpoint) -> None:
        """Go on from a checkpoint."""
        node = self.node
        node.resume(checkpoint.numbers, checkpoint.vectors)
        assert node.server is not None
        version, age = node.server.version, node.server.age
        self.recorder.restore(checkpoint.numbers["tally"])
        lost = self.recorder.resume(version)
        self.metrics.lost(lost)
        self.log.info("server-resumed", checkpoint=checkpoint.number, version=version, age=age, lost_updates=lost)
        self._begun()
        self.go_on()

    def _begun(self) -> None:
        self.metrics.began(token=getattr(self.node.server, "token", False))
        self.started.set()

    # --- One message at a time -------------------------------------------------------------------------------------

    def go_on(self) -> None:
        """Do what the node wants done, and serve what waits until there is nothing left or a thread has to work."""
        node = self.node
        if self.failed.done():
            return
        try:
            self.recorder.waiting(node.waiting)
            self._carry_out(node.take_effects())
            while node.ready:
                if self._large and not node.light:
                    computed = self.loop.run_in_executor(self._mixer, node.compute)
                    node.computing = True  # before the thread gets to it
                    computed.add_done_callback(self._computed)
                    return
                node.finish(node.compute())
                self._carry_out(node.take_effects())
        except Exception as error:
            self.fail(error)

    def _computed(self, computed: asyncio.Future[list[Action]]) -> None:
        if computed.cancelled() or self.failed.done():
            return
        try:
            self.node.finish(computed.result())
            while self._idle:
                self._idle.pop(0)()
        except Exception as error:
            self.fail(error)
            return
        self.go_on()
        self._progress.set()

    def fail(self, error: Exception) -> None:
        """The state cannot be trusted any more: end, and save nothing."""
        if not self.failed.done():
            self.failed.set_exception(error)

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case WriteFact():
                    if isinstance(effect.fact, PeerSuspected | PeerTrusted):
                        self.log.warning(effect.fact.kind, peer=effect.fact.peer)
                    self.recorder.fact(effect.fact, effect.queue)
                    self.metrics.fact(effect.fact, effect.queue)
                    match effect.fact:
                        case ClientQuarantined(client=client, reason=reason, seconds=seconds):
                            self.log.warning(effect.fact.kind, client=client, reason=reason, seconds=seconds)
                        case RateHalved(norm=norm, rate=rate):
                            self.log.warning(effect.fact.kind, norm=norm, rate=rate)
                        case ModelRestored(norm=norm, good_norm=good_norm, gain=gain):
                            self.log.warning(effect.fact.kind, norm=norm, good_norm=good_norm, gain=gain)
                case SendTask():
                    frame = pb.Frame()
                    frame.assignment.ticket, frame.assignment.saved_version = effect.ticket, effect.saved_version
                    arrays = fill(frame.assignment.content, effect.message)
                    effect.session.give(frame.SerializeToString(), arrays, effect.message.kind)
                case Completed():
                    effect.receipt()
                case SaveCheckpoint():
                    self._save(effect)
                case SendPeer():
                    self.news[effect.peer].set()
                case AcknowledgePeer():
                    self.acks[effect.peer].set()
                case SendControl():
                    self.control[effect.peer].append(effect.message)
                    self.news[effect.peer].set()
                case MembershipChanged():
                    self.log.info("members", epoch=effect.view.epoch, servers=sorted(effect.view.members))
                    self.members_changed(effect)
                case StopProcess():
                    if not self.stopped.done():
                        self.stopped.set_result(effect)
                case WelcomeClient():
                    body = pb.Welcome(
                        protocol=PROTOCOL,
                        server=self.node.id,
                        keep=effect.keep,
                        saved_version=effect.saved_version,
                    )
                    effect.session.note(pb.Frame(welcome=body).SerializeToString())
                case CloseSession():
                    effect.session.close(effect.reason)
                case StartTimer():
                    self._stop_timer(effect.timer)
                    self._timers[effect.timer] = self.loop.call_later(effect.seconds, self._expire, effect.timer)
                case StopTimer():
                    self._stop_timer(effect.timer)
                case ClientRejected():
                    self.refused(effect.client, effect.rejection)
                case NodeStarted():
                    self.log.info("started", clients=effect.clients)
                    self.recorder.begin(time.time())
                    self._begun()

    def refused(self, client: int | None, rejection: Rejection) -> None:
        """Something was refused at the border: say so and count it."""
        self.metrics.rejected(rejection.reason)
        self.limited_log.say("warning", "rejected", rejection.reason, client, client=client, detail=str(rejection))

    def _stop_timer(self, timer: str) -> None:
        running = self._timers.pop(timer, None)
        if running is not None:
            running.cancel()

    def _expire(self, timer: str) -> None:
        self._timers.pop(timer, None)
        self.tell(self.node.expire, timer)

    def tell(self, event: Callable[..., None], *about: Any) -> None:
        """Tell the node of something, and go on. What it refuses is the fault of whoever came; the rest is ours."""
        try:
            event(*about)
        except Rejection:
            self.go_on()
            raise
        except Exception as error:
            self.fail(error)
        self.go_on()

    # --- Between two messages --------------------------------------------------------------------------------------

    async def snapshot(self) -> Vector:
        """The model as it is between two messages; an error if the node fails before there is such a moment."""
        taken: asyncio.Future[Vector] = self.loop.create_future()

        def take() -> None:
            assert self.node.server is not None
            if not taken.done():
                taken.set_result(self.node.server.weights.snapshot())

        if self.node.computing:
            self._idle.append(take)
        else:
            take()
        await asyncio.wait((taken, self.failed), return_when=asyncio.FIRST_COMPLETED)
        if not taken.done():
            self.failed.result()
        return taken.result()

    def _save(self, save: SaveCheckpoint) -> None:
        """Let a thread write a checkpoint."""
        about = {"layout": self.layout, "identity": self.identity, "tally": self.recorder.numbers()}
        numbers = {**save.numbers, **about}
        began = time.monotonic()
        done = self.loop.run_in_executor(self._disk, self.checkpoints.save, numbers, save.vectors)
        done.add_done_callback(lambda future: self._saved(future, began))

    def _saved(self, done: asyncio.Future[int], began: float) -> None:
        if done.cancelled() or self.failed.done():
            return
        error = done.exception()
        if error is not None:
            self.limited_log.say("error", CHECKPOINT_FAILED, type(error).__name__, error=repr(error))
            self._unsaved.add(type(error).__name__)
            self.tell(self.node.save_failed)
        else:
            while self._unsaved:
                self.limited_log.over(CHECKPOINT_FAILED, self._unsaved.pop())
            self.tell(self.node.saved)
            self.metrics.saved(self.node.saved_version, time.monotonic() - began)
        self._progress.set()

    async def settle(self) -> None:
        """Wait until what has arrived has been served and saved, or the node failed. Nothing more must arrive."""
        while not self.node.settled and not self.failed.done():
            self._progress.clear()
            self.node.save_soon()
            self.go_on()
            if self.node.settled:
                return
            progress = asyncio.ensure_future(self._progress.wait())
            await asyncio.wait((progress, self.failed), return_when=asyncio.FIRST_COMPLETED)
            progress.cancel()

    def close(self) -> None:
        """Let go of timers and threads."""
        for timer in list(self._timers):
            self._stop_timer(timer)
        self._mixer.shutdown()
        self._disk.shutdown()
