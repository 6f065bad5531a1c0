"""A client's connection to its server: it receives tasks and sends updates.

:class:`~spyker.node.pending_updates.PendingUpdates` decides what a client keeps across connections and what it sends.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
import traceback
from typing import Any

import grpc
import grpc.aio

from spyker.errors import ClientRejectedError, ClientStateError, TrainingFailedError
from spyker.net import spyker_pb2 as pb
from spyker.net.backoff import Backoff
from spyker.net.channels import CLIENTS_CONNECT
from spyker.net.client_context import ClientContext
from spyker.net.client_identity import ClientIdentity, answer_challenge
from spyker.net.client_status import ClientStatus
from spyker.net.connection_hints import PROXY_CREDENTIALS, PROXY_REFUSES, connection_hint
from spyker.net.frames import PROTOCOL, send, split
from spyker.net.ledger_file import PrivacyBudgetSpentError
from spyker.net.nearest_server import clearly_nearer
from spyker.net.streams import CONNECTION_LOST, StreamEnded, end_status, read_body, read_frame
from spyker.net.transports import Connections
from spyker.net.wire import MessageValidator, fill
from spyker.node.pending_updates import PendingTask, PendingUpdates
from spyker.node.rejection import Rejection
from spyker.protocol.client import Client
from spyker.protocol.codec import MalformedMessage
from spyker.protocol.messages import ServerMessage

WELCOME_SECONDS = 60.0
LEAVE_SECONDS = 2.0
KEY_SECONDS = 0.1  # between two looks whether a key has arrived
SILENT_SECONDS = 2.5  # without any progress, until a client that waits for its server sends a probe
PATIENCE_FACTOR = 3.0  # a client leaves a server that answers only probes for this multiple of the patience
LONGEST_PAUSE = 1.0  # between attempts, if there are several servers
PING_TIMEOUT = "ping timeout"  # in gRPC's reason
REPLACED = "replaced by a newer connection of the same client"  # the server's reason
REPLACEMENTS = 3  # consecutive replacements that show another process with the same client
FINAL = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.FAILED_PRECONDITION)  # a retry would fail, too


class ClientLink:
    """Connects one client, and reconnects until the training is over."""

    def __init__(
        self,
        client: Client,
        shared: ClientContext,
        connections: Connections,
        identity: ClientIdentity | None,
        *,
        resends: bool = True,
    ) -> None:
        """Create the link; ``connections`` are this client's own, and with ``resends`` lost updates are sent again."""
        self.id, self.shared, self.connections, self.log = client.id, shared, connections, shared.log
        self.pending = PendingUpdates(client, resends=resends)
        self.status = ClientStatus(client.id, trainings=client.step)
        self.identity = identity
        self._validator = MessageValidator(client.kinds, shared.sizes)
        self._seen = time.monotonic()  # last message of a server
        self._active = self._seen  # last frame that was read or written, or answer to a probe
        self._lost_at = self._seen  # when the connection was lost
        self._probing: asyncio.Task[None] | None = None
        self._return_to: str | None = None  # a nearer server, or one that may miss updates of this client
        self._failure: TrainingFailedError | PrivacyBudgetSpentError | None = None
        self._timed_out = False  # the server has not answered a ping for so long that patience is over
        self._leaves = False  # has said goodbye over this connection
        self._silent = False  # the connection was closed because the server did not answer
        self._replaced = 0  # consecutive connections that were replaced by another one of this client
        self._training: asyncio.Task[None] | None = None
        self._trained: PendingTask | None = None  # its task
        self._wake = asyncio.Event()  # there may be something to send
        self._sending = asyncio.Lock()
        self._stream: Any = None
        self._writing_since: float | None = None

    def check_stalled(self) -> None:
        """Close the connection if the server has read nothing for too long."""
        since, stream = self._writing_since, self._stream
        if stream is not None and since is not None and time.monotonic() - since > self.shared.behaviour.stall:
            self.log.warning("stalled", client=self.id)
            stream.cancel()

    def check_silent(self) -> None:
        """Probe the server if this client waits for it and nothing happens; disconnect if it is silent.

        A client that trains needs no server, and one that knows no other server could not turn to it.
        """
        quiet = time.monotonic() - self._active > SILENT_SECONDS
        if self._stream is None or self._trains or not quiet or len(self.shared.servers.addresses) == 1:
            return
        if self._probing is None or self._probing.done():
            self._probing = asyncio.create_task(self._probe(self._stream, self._active))

    @property
    def _trains(self) -> bool:
        return self._training is not None and not self._training.done()

    async def _probe(self, stream: Any, active: float) -> None:
        silent = self.status.address is not None and await self.shared.ranking.silent(self.status.address)
        if self._stream is not stream or self._active != active:
            return
        self._active = time.monotonic()
        if silent:
            self.log.warning("silent", client=self.id, address=self.status.address)
            self._silent = True
            stream.cancel()

    async def run(self) -> None:
        """Stay connected to a server until the training is over."""
        await asyncio.to_thread(self.shared.training.check_budget, self.id)  # before any server is called
        backoff, finished = Backoff(), False
        address = await self.shared.ranking.best()
        try:
            while not finished:
                seen = self._seen
                try:
                    finished = await self._attend(address)
                    self._replaced = 0
                except CONNECTION_LOST as error:
                    self._lost(address, error, answered=self._seen > seen)
                if self._failure is not None:
                    raise self._failure
                if not finished:
                    if self._seen > seen:
                        backoff.reset()
                        self._lost_at = time.monotonic() - (self.shared.behaviour.patience if self._timed_out else 0.0)
                    await asyncio.sleep(min(backoff.seconds(), self._longest_pause()))
                    address = await self._next(address)
        finally:
            self.pending.drop()
            self._stop_training()

    def _lost(self, address: str, error: BaseException, *, answered: bool) -> None:
        """Log a lost connection; raise an error if a retry would fail, too.

        ``answered`` says whether the server had answered over this connection.
        """
        if self._failure is not None or self._leaves:
            return  # the client has left
        code, details = end_status(error)
        self._timed_out = PING_TIMEOUT in details
        self.status.address = None
        self.status.failed(f"{address}: {code.name}: {details}")
        fields: dict[str, Any] = {} if (hint := self._hint(address, code, details)) is None else {"hint": hint}
        self.log.warning("disconnected", client=self.id, address=address, code=code.name, error=details, **fields)
        if not answered and self.connections.failed(address, error):
            self.log.info("other-transport", client=self.id, address=address)
        if PROXY_REFUSES in details:
            raise ClientRejectedError(self.id, PROXY_CREDENTIALS)
        if code in FINAL:
            raise ClientRejectedError(self.id, f"{address} refused it: {details}")
        self._replaced = self._replaced + 1 if REPLACED in details else 0
        if self._replaced >= REPLACEMENTS:
            raise ClientRejectedError(
                self.id,
                f"another process is this client, too: at {address} it was {REPLACED}, {REPLACEMENTS} times in a row. "
                "Give every process clients of its own",
            )
        if code is grpc.StatusCode.INVALID_ARGUMENT:
            self.pending.rejected()
            self._stop_superseded()

    def _hint(self, address: str, code: grpc.StatusCode, details: str) -> str | None:
        """Return, once per address, a hint about a server that has never answered."""
        if address in self.shared.known:
            return None
        hint = connection_hint(code, details, insecure=self.identity is None)
        if hint is not None:
            self.shared.known.add(address)
        return hint

    async def _next(self, address: str) -> str:
        """Return where to reconnect: for some time the same address, then the nearest server that responds.

        A client that trains needs no server, and does not give up its training for another one.
        """
        behaviour, ranking = self.shared.behaviour, self.shared.ranking
        if behaviour.give_up is not None and time.monotonic() - self._seen > behaviour.give_up:
            raise ClientRejectedError(self.id, f"no server has answered for {behaviour.give_up:g} s")
        back, self._return_to = self._return_to, None
        if back is not None:
            return back
        silent, self._silent = self._silent, False
        away = time.monotonic() - self._lost_at
        stays = self._trains or (self.pending.holds(address) and away < behaviour.patience and not silent)
        if stays and address in self.shared.servers.addresses:
            return address
        failing = silent or away > PATIENCE_FACTOR * behaviour.patience
        return await ranking.best(fresh=not silent, without=address if failing else None)

    def _longest_pause(self) -> float:
        """Return the longest pause before the next attempt: another server is tried as soon as patience ends."""
        if len(self.shared.servers.addresses) == 1:
            return math.inf
        remaining = self._lost_at + self.shared.behaviour.patience - time.monotonic()
        return remaining if remaining > 0 else LONGEST_PAUSE

    async def leave(self) -> None:
        """Say goodbye to the server."""
        stream = self._stream
        if stream is None:
            return
        self._leaves = True
        self.log.info("left", client=self.id, address=self.status.address)
        with contextlib.suppress(*CONNECTION_LOST):
            async with asyncio.timeout(LEAVE_SECONDS), self._sending:  # this is the last message
                await stream.write(pb.Frame(goodbye=pb.Goodbye()).SerializeToString())
                await stream.done_writing()
                await stream.code()

    # --- One connection --------------------------------------------------------------------------------------------

    async def _attend(self, address: str) -> bool:
        """Run one stream, from the challenge to its end. Return True if the training is over."""
        self._leaves = False
        await self.connections.leave_others(address)
        stream = await self.connections.open(address, CLIENTS_CONNECT)
        answering: asyncio.Task[None] | None = None
        try:
            await self._handshake(stream, address)
            self._stream = stream
            answering = asyncio.create_task(self._answer_all(stream))
            answering.add_done_callback(lambda task: stream.cancel())
            return await self._work(stream, address)
        except asyncio.CancelledError:
            if answering is not None and answering.done() and not answering.cancelled():
                error = answering.exception()
                if error is not None:
                    raise error from None  # the cause of the cancellation
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise StreamEnded(grpc.StatusCode.CANCELLED, "the connection was closed") from None
        finally:
            self._stream = self._writing_since = None
            if answering is not None:
                answering.cancel()
            stream.cancel()

    async def _handshake(self, stream: Any, address: str) -> None:
        """Answer the server's challenge with Hello and the tokens of the pending tasks, and receive Welcome."""
        async with asyncio.timeout(WELCOME_SECONDS):
            challenge = await read_body(stream, "challenge")
        held_tokens = self.pending.connect(address)
        self._stop_superseded()
        servers = self.shared.servers
        hello = pb.Hello(
            protocol=PROTOCOL,
            client=self.id,
            size=self.shared.training.task.size(self.id),
            layout=self.shared.layout,
            learning=self.shared.learning,
            held_tokens=held_tokens,
            members=servers.follows,
            epoch=servers.epoch,
            booked=self.shared.training.booked(self.id),
        )
        answer_challenge(hello, challenge, self.identity, servers.numbers.get(address))
        await stream.write(pb.Frame(hello=hello).SerializeToString())
        async with asyncio.timeout(WELCOME_SECONDS):
            welcome = await read_body(stream, "welcome")
        self._seen = self._active = time.monotonic()
        self.shared.known.add(address)
        servers.met(address, welcome.server)
        await self._raise_ledger(welcome.booked)
        self.pending.welcomed(
            welcome.server, keep=welcome.keep, received=welcome.received, saved=welcome.saved, ask=welcome.ask
        )
        self._stop_superseded()
        self.status.address, self.status.server = address, welcome.server
        self.log.info(
            "attending",
            client=self.id,
            address=address,
            server=welcome.server,
            kept=welcome.keep,
            transport=self.connections.worked(address),
        )

    async def _raise_ledger(self, booked: int) -> None:
        """Book what the server has heard of and the ledger has not: the state was restored from a backup, or copied."""
        before = self.shared.training.booked(self.id)
        if booked <= before:
            return
        self.log.warning("ledger-behind", client=self.id, booked=before, server_booked=booked)
        try:
            await self.shared.training.raise_ledger(self.id, booked)
        except ClientStateError as error:
            self._fail(error)
            assert self._failure is not None
            raise self._failure from error

    async def _work(self, stream: Any, address: str) -> bool:
        """Receive tasks. Return True if the training is over."""
        return_after = self.shared.behaviour.return_after
        next_check = time.monotonic() + return_after
        while True:
            chunk, frame = split(await self._read(stream))
            kind = None if frame is None else frame.WhichOneof("body")
            if frame is not None and kind == "goodbye":
                goodbye = frame.goodbye
                self.log.info("goodbye", client=self.id, finished=goodbye.finished, saved_version=goodbye.saved_version)
                return bool(goodbye.finished)
            if frame is not None and kind == "member_list":
                self._follow(frame.member_list.json)
                continue
            if frame is not None and kind == "saved":
                self.pending.told(frame.saved.number, ask=frame.saved.ask)
                await self._answer(stream)
                continue
            if frame is None or kind != "assignment":
                raise Rejection("malformed", "neither a task nor a goodbye")
            assignment = frame.assignment
            self.pending.superseded(assignment.saved)  # before the new model arrives, which needs the memory
            self._stop_superseded()
            message = await self._receive(stream, assignment.content, chunk)
            if time.monotonic() >= next_check:
                next_check = time.monotonic() + return_after
                if await self._better(address):
                    self.pending.leave()
                    await self.leave()
                    return False
            number, token, saved = assignment.number, assignment.task_token, assignment.saved
            try:
                held = self.pending.assigned(address, number, token, message, saved)
            except MalformedMessage as error:
                raise Rejection("malformed", str(error)) from None
            await self._begin(held)
            del chunk, message  # they may be large
            await self._answer(stream)

    def _follow(self, members: bytes) -> None:
        """Follow a member list; one that is not proven changes nothing."""
        try:
            self.shared.servers.follow(members, self.log)
        except Rejection as rejection:
            self.log.warning("members-rejected", client=self.id, server=self.status.server, detail=str(rejection))

    async def _better(self, address: str) -> bool:
        """Return whether a clearly nearer server is reachable again, or one that may miss updates of this client."""
        ranking = self.shared.ranking
        best = await ranking.best(fresh=True)
        back = [a for a in self.pending.elsewhere if ranking.seconds.get(a) is not None]
        if back or address not in self.shared.servers.addresses:
            self._return_to = min(back, key=lambda a: ranking.seconds[a] or 0.0, default=best)
            return self._return_to != address
        here, there = ranking.seconds.get(address), ranking.seconds.get(best)
        nearer = here is not None and there is not None and clearly_nearer(there, here)
        self._return_to = best if nearer else None
        return nearer

    async def _read(self, stream: Any) -> bytes:
        data = await read_frame(stream)
        self._seen = self._active = time.monotonic()
        return data

    async def _receive(self, stream: Any, content: pb.Content, chunk: memoryview | None) -> ServerMessage:
        incoming = self._validator.arrive(content, chunk)
        if incoming.whole:
            message = incoming.now()
        else:
            message, _ = await incoming.later(lambda: self._read(stream), self.shared.buffers.vector)
        assert isinstance(message, ServerMessage)
        return message

    # --- Training and answering ------------------------------------------------------------------------------------

    async def _begin(self, held: PendingTask) -> None:
        """Start training; wait for it if it takes no noticeable time."""
        if self.shared.training.at_once:
            await self._train(held)
        else:
            self._trained, self._training = held, asyncio.create_task(self._train(held))
            self._training.add_done_callback(lambda task: self._wake.set())

    async def _train(self, held: PendingTask) -> None:
        try:
            assert held.order is not None
            step = held.order.step
            job = await self.shared.training.train(self.id, held.order)
            held.booked = self.shared.training.booked(self.id)
            assert job.result is not None
            self.status.trainings = step + 1
            while not self.pending.client.ready:  # for a server's key, which follows with the member list
                await asyncio.sleep(KEY_SECONDS)
            if job.evaluation is not None:
                self.status.scores = job.evaluation.scores
            self.pending.trained(held, job.result, job.examples, job.metrics, job.reported_evaluation)
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """Leave because the training failed, or because the privacy budget is spent."""
        if isinstance(error, PrivacyBudgetSpentError):
            self._failure = error
            self.status.failed(error.reason)
            self.log.warning("privacy-budget-spent", client=self.id, detail=error.reason)
            self._wake.set()
            return
        cause = error.__cause__ or error  # the task's own error
        stored = isinstance(error, ClientStateError)
        text = str(error) if stored else f"{type(cause).__name__}: {cause}"
        self._failure = TrainingFailedError(self.id, text if stored else f"its training failed ({text})")
        self.status.failed(self._failure.reason)
        trace = "".join(traceback.format_exception(cause))
        self.log.error("state-not-saved" if stored else "training-failed", client=self.id, error=text, traceback=trace)
        self._wake.set()

    def _stop_superseded(self) -> None:
        """Stop a training whose update nobody wants any more."""
        if self._trained not in self.pending.tasks:
            self._stop_training()

    def _stop_training(self) -> None:
        if self._training is not None:
            self._training.cancel()
        self._training = self._trained = None

    async def _answer_all(self, stream: Any) -> None:
        """Send updates when they are ready; after a failure, leave."""
        while self._failure is None:
            await self._answer(stream)
            await self._wake.wait()
            self._wake.clear()
        await self.leave()

    async def _answer(self, stream: Any) -> None:
        """Send the pending update, unless it was sent."""
        offer = self.pending.offer()
        if offer is None:
            return
        task_token, message = offer
        frame = pb.Frame()
        frame.update.task_token, frame.update.booked = task_token, self.pending.offered_booking
        arrays = fill(frame.update.content, message, echoed=False)
        body = frame.SerializeToString()

        async def write(frame: bytes) -> None:
            self._writing_since = time.monotonic()
            await stream.write(frame)
            self._writing_since, self._active = None, time.monotonic()

        async with self._sending:  # an update of a superseded task may still be being sent
            await send(write, body, arrays)
        self.status.last_update = time.time()
