"""The port for clients: authentication and validation.

A client shows its certificate and signs the server's challenge. It may send one update for its task, with finite
weights of the agreed layout. Anything else is rejected with a reason, which is logged and counted, and ends the stream;
the state does not change.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio

from spyker.net import spyker_pb2 as pb
from spyker.net.client_identity import REASON, ClientVerifier, new_nonce
from spyker.net.connection_limits import AuthenticatedPeers
from spyker.net.driver import Driver
from spyker.net.frames import PROTOCOL, send, split
from spyker.net.member_list import ListedMembers
from spyker.net.peer_address import host_of
from spyker.net.replaced_clients import ReplacedClients
from spyker.net.streams import STREAM_OVER
from spyker.net.wire import IncomingMessage, MessageValidator
from spyker.node.client_certificate import CertifiedClient
from spyker.node.events import ClientConnected, ClientDisconnected, ClientLeft, Event, UpdateReceived
from spyker.node.rejection import Rejection
from spyker.node.task_tokens import TaskToken
from spyker.protocol.codec import Array, Sizes
from spyker.protocol.messages import ClientMessage, Message

HELLO_SECONDS = 10.0
LARGEST_HELLO = 16_384  # bytes, with the certificate
MOST_BOOKED = 1 << 53
CODES = {REASON: grpc.StatusCode.UNAUTHENTICATED, "mismatch": grpc.StatusCode.FAILED_PRECONDITION}


def check_booked(booked: int) -> None:
    """Reject a number of booked trainings that JSON and a double cannot represent exactly."""
    if booked >= MOST_BOOKED:
        raise Rejection("malformed", f"booked: {booked} is not allowed: it must be below {MOST_BOOKED}")


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """Limits on a client's time and messages."""

    stall: float = 30.0
    """Disconnect a client that reads or writes nothing for this many seconds."""
    min_mbit: float = 0.5
    """Disconnect a client that transfers a model more slowly than this."""
    max_norm: float | None = None
    """Reject models whose norm exceeds this."""


class ClientPort:
    """Serves the streams of clients."""

    def __init__(
        self,
        driver: Driver,
        sizes: Sizes,
        kinds: Iterable[type[ClientMessage]],
        verifier: ClientVerifier | None,
        limits: ClientLimits,
        authenticated: AuthenticatedPeers | None = None,
    ) -> None:
        """Serve clients, which send messages of these ``kinds``; ``authenticated`` is told their connections.

        If ``verifier`` is ``None``, clients are not authenticated.
        """
        self.driver, self.validator = driver, MessageValidator(kinds, sizes)
        self.verifier, self.limits = verifier, limits
        self.authenticated = AuthenticatedPeers() if authenticated is None else authenticated
        self.replaced = ReplacedClients(driver)
        driver.replaced_clients = self.replaced.status
        self.live: set[ClientSession] = set()
        self._numbers = itertools.count(1)

    async def attend(self, requests: object, context: Any) -> None:
        """Serve one stream, from the challenge to its end."""
        driver, session, k = self.driver, None, None
        try:
            nonce = b"" if self.verifier is None else new_nonce()
            challenge = pb.Challenge(protocol=PROTOCOL, server=driver.node.id, nonce=nonce)
            await context.write(pb.Frame(challenge=challenge).SerializeToString())
            hello = await self._hello(context)
            certified = self._identify(hello, nonce)
            k = hello.client
            driver.node.check_client(k, hello.size, hello.layout, hello.learning)
            check_booked(hello.booked)
            if hello.check:
                welcome = pb.Welcome(protocol=PROTOCOL, server=driver.node.id)
                await context.write(pb.Frame(welcome=welcome).SerializeToString())
                return
            session = ClientSession(self, k, context, next(self._numbers), certified)
            if hello.members:
                session.members = ListedMembers(hello.epoch)
            open_from = [each.address for each in self.live if each.client == k]
            self.replaced.connected(k, session.address, open_from)
            self.live.add(session)
            held = tuple(hello.held_tokens)
            self._deliver(ClientConnected(k, session, hello.size, held, hello.booked, now=driver.now()))
            with self.authenticated.streaming(context.peer()):
                await session.run()
        except Rejection as rejection:
            driver.refused(k, rejection)
            await context.abort(CODES.get(rejection.reason, grpc.StatusCode.INVALID_ARGUMENT), str(rejection))
        finally:
            if session is not None:
                self.live.discard(session)
                session.end()
                self._deliver(ClientDisconnected(session.client, session, now=driver.now()))

    def _deliver(self, event: Event) -> None:
        self.driver.deliver(event)
        self.driver.metrics.clients(len(self.driver.node.sessions))

    def _identify(self, hello: pb.Hello, nonce: bytes) -> CertifiedClient | None:
        """Return the client whose certificate and signature came with Hello, or raise a rejection."""
        if self.verifier is None:
            return None
        client = self.verifier.verify(hello.certificate, hello.signature, nonce, self.driver.node.id)
        if hello.client != client.number:
            raise Rejection(REASON, f"client {client.number} does not speak for client {hello.client}")
        self.driver.names[client.number] = client.name
        return client

    async def _hello(self, context: Any) -> pb.Hello:
        try:
            async with asyncio.timeout(HELLO_SECONDS):
                data = await context.read()
        except TimeoutError:
            raise Rejection("malformed", "no Hello") from None
        if data is grpc.aio.EOF:
            raise Rejection("malformed", "no Hello")
        if len(data) > LARGEST_HELLO:
            raise Rejection("oversized", f"a first frame of {len(data):,} bytes; {LARGEST_HELLO:,} are allowed")
        _, frame = split(data)
        if frame is None or frame.WhichOneof("body") != "hello":
            raise Rejection("malformed", "the first frame is not Hello")
        hello = frame.hello
        if hello.protocol != PROTOCOL:
            raise Rejection("mismatch", f"this server speaks version {PROTOCOL} of the protocol, not {hello.protocol}")
        return hello

    async def watch(self) -> None:
        """Disconnect clients that have stalled, and clients whose certificates were revoked."""
        stall = self.limits.stall
        while True:
            await asyncio.sleep(min(1.0, stall / 4))
            now = time.monotonic()
            self._revoke()
            for session in list(self.live):
                session.send_members()
                problem = session.stalled(now, stall)
                if problem is not None:
                    self.driver.metrics.rejected("stalled")
                    fields = self.driver.named(session.client) | {"detail": problem}
                    self.driver.limited_log.say("warning", "stalled", problem, session.client, **fields)
                    session.close(problem)

    def _revoke(self) -> None:
        """Disconnect clients whose certificates were revoked."""
        if self.verifier is None or not self.verifier.revocations.refresh(self.driver.log):
            return
        for session in list(self.live):
            try:
                if session.certified is not None:
                    self.verifier.check(session.certified)
            except Rejection as rejection:
                self.driver.log.warning("revoked", **self.driver.named(session.client))
                session.close(str(rejection))


class ClientSession:
    """A client's connection."""

    def __init__(
        self, port: ClientPort, client: int, context: Any, number: int, certified: CertifiedClient | None
    ) -> None:
        """``number`` stands for the session in the event log."""
        self.port, self.driver, self.client, self.context = port, port.driver, client, context
        self.number, self.certified = number, certified
        self.address = host_of(context.peer())
        self.members: ListedMembers | None = None  # if the client asked for them
        self._welcomed = False
        self._notes: deque[bytes] = deque()
        # A new task replaces an unsent one.
        self._assignment: tuple[bytes, Sequence[Array], str] | None = None
        self._news = asyncio.Event()
        self._sending = False
        self._handing_over = False  # an update; the reader itself sends a task that follows at once
        self._closed: str | None = None
        self._reading_since: float | None = None
        self._read_by = 0.0  # when the message that is being read must be complete
        self._writing_since: float | None = None
        self._task = asyncio.current_task()
        self._sender = asyncio.create_task(self._send())
        self._sender.add_done_callback(self._sender_ended)

    def give(self, body: bytes, arrays: Sequence[Array], kind: str) -> None:
        """Send a task when the client is ready for it."""
        self._assignment = body, arrays, kind
        if not self._handing_over:
            self._news.set()

    def note(self, body: bytes) -> None:
        """Send a frame; the first one is Welcome."""
        self._notes.append(body)
        if not self._welcomed:
            self._welcomed = True
            self.send_members()
        self._news.set()

    def send_members(self) -> None:
        """Send the member list if the client wants it and it has changed."""
        if self.members is not None and self._welcomed:
            body = self.members.news(self.driver.node.membership)
            if body is not None:
                self.note(body)

    def close(self, reason: str) -> None:
        """Abort the stream."""
        if self._closed is None and self._task is not None:
            self._closed = reason
            self._task.cancel()

    def _sender_ended(self, sender: asyncio.Task[None]) -> None:
        """Close the stream if the sender failed, so that the client does not wait for ever."""
        error = None if sender.cancelled() else sender.exception()
        if error is not None:
            self.driver.log.error("sender-failed", **self.driver.named(self.client), error=repr(error))
            self.close("the server could not send")

    def end(self) -> None:
        """Clean up after the stream has ended."""
        self._sender.cancel()
        self._assignment = None

    async def say_goodbye(self, body: bytes) -> None:
        """Send a last frame, and wait until it is sent."""
        self._assignment = None
        self._notes.append(body)
        self._news.set()
        while (self._notes or self._sending) and not self._sender.done():
            await asyncio.sleep(0.005)
        self.close("")

    def stalled(self, now: float, stall: float) -> str | None:
        """Return a problem if reading or writing makes no progress, or too little."""
        for since in (self._reading_since, self._writing_since):
            if since is not None and since < now - stall:
                return "nothing was read or written for too long"
        if self._reading_since is not None and now > self._read_by:
            return "a model arrived more slowly than min-mbit allows"
        return None

    async def run(self) -> None:
        """Read updates until either side ends the stream."""
        try:
            await self._read()
        except asyncio.CancelledError:
            if self._reading_since is not None:
                self.driver.refused(
                    self.client, Rejection("truncated", "the connection broke in the middle of a message")
                )
            if self._closed is None:
                raise  # the connection is lost
            if self._task is not None:
                self._task.uncancel()
            if self._closed:
                await self.context.abort(grpc.StatusCode.ABORTED, self._closed)

    async def _read(self) -> None:
        driver, port, k, read = self.driver, self.port, self.client, self.context.read
        node, max_norm = driver.node, port.limits.max_norm
        while True:
            data = await read()
            if data is grpc.aio.EOF:
                return
            chunk, frame = split(data)
            body = None if frame is None else frame.WhichOneof("body")
            if body == "goodbye":
                driver.deliver(ClientLeft(k, self, now=driver.now()))
                return
            if frame is None or body != "update":
                raise Rejection("malformed", "neither an answer nor a goodbye")
            answer = frame.update
            token = node.verify_token(k, answer.task_token)
            check_booked(answer.booked)
            incoming = port.validator.arrive(answer.content, chunk)
            size, kind = len(data), incoming.kind.kind
            if node.draining:
                await asyncio.Event().wait()  # until the stream ends; the client will send this again
            if incoming.whole:
                message = incoming.now(max_norm, age=token.age, version=token.version)
                self._hand_over(token, answer.booked, message, None)
            else:
                size += await self._receive(token, answer.booked, incoming)
            driver.recorder.carried("client-to-server", kind, size)
            driver.metrics.received(kind, size)
            del chunk, data, frame, answer, incoming
            if self._assignment is not None or self._notes:
                try:
                    await self._flush()
                except STREAM_OVER:
                    return

    async def _receive(self, token: TaskToken, booked: int, incoming: IncomingMessage) -> int:
        """Receive the rest of an update whose first chunk is here, and return its number of bytes."""
        driver, limits, buffers = self.driver, self.port.limits, self.driver.buffers

        async def read() -> object:
            self._reading_since = time.monotonic()
            return await self.context.read()

        await buffers.turn()
        try:
            self._reading_since = time.monotonic()
            self._read_by = self._reading_since + limits.stall + incoming.bytes * 8 / (limits.min_mbit * 1e6)
            message, size = await incoming.later(
                read, buffers.vector, limits.max_norm, age=token.age, version=token.version
            )
            self._reading_since = None
            if driver.node.draining:
                await asyncio.Event().wait()
            self._hand_over(token, booked, message, buffers.free)
        except BaseException:
            buffers.free()
            raise
        return size

    def _hand_over(self, token: TaskToken, booked: int, message: Message, receipt: Callable[[], None] | None) -> None:
        self._handing_over = True
        try:
            assert isinstance(message, ClientMessage)
            now = self.driver.now()
            self.driver.deliver(UpdateReceived(self.client, token.number, message, receipt, booked, now=now))
        finally:
            self._handing_over = False

    async def _send(self) -> None:
        """Send frames and tasks as they come."""
        try:
            while True:
                await self._news.wait()
                self._news.clear()  # before the flush: while another one is under way this must wait again, not spin
                await self._flush()
        except STREAM_OVER:
            return  # the reader of the stream handles this

    async def _flush(self) -> None:
        """Send everything that waits, unless another task is doing so."""
        if self._sending:
            return
        self._sending = True
        try:
            while self._notes or self._assignment is not None:
                if self._notes:
                    await send(self._write, self._notes.popleft())
                elif self._assignment is not None:
                    (body, arrays, kind), self._assignment = self._assignment, None
                    size = await send(self._write, body, arrays)
                    del arrays
                    self.driver.recorder.carried("server-to-client", kind, size)
                    self.driver.metrics.sent(kind, size)
        finally:
            self._sending = False

    async def _write(self, frame: bytes) -> None:
        self._writing_since = time.monotonic()
        await self.context.write(frame)
        self._writing_since = None
