"""The border to the clients: who may come in, and what may pass.

A client is who its credential says. It may answer the task it was given, once, with finite weights of the agreed
layout. Everything else is refused with a reason, logged and counted, and ends the stream; nothing else changes.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio

from spyker.deploy import spyker_pb2 as pb
from spyker.deploy.certificates import credential_digest
from spyker.deploy.frames import PROTOCOL, Refusal, in_one_piece, receive, send, split
from spyker.deploy.host import Host
from spyker.vectors import Vector

HELLO_SECONDS = 10.0
MOST_DATA = 1 << 31  # data points of one client; in an average by size, more would silence everybody else
STREAM_OVER = (grpc.aio.UsageError, grpc.aio.InternalError, grpc.aio.AbortError, asyncio.InvalidStateError)
CODES = {"credential": grpc.StatusCode.UNAUTHENTICATED, "agreement": grpc.StatusCode.FAILED_PRECONDITION}


class Door:
    """Lets clients in."""

    def __init__(
        self, host: Host, *, clients: int, credentials: dict[str, int] | None, layout: bytes, learning: bytes
    ) -> None:
        """``credentials`` tell, by the digest of a credential, whose it is. Without any, clients are who they say."""
        self.host, self.clients, self.credentials = host, clients, credentials
        self.layout, self.learning = layout, learning
        self.live: set[LiveSession] = set()

    async def attend(self, requests: object, context: Any) -> None:
        """One stream, from Hello to its end."""
        host, session, k = self.host, None, None
        try:
            k = self.identify(context)
            hello = await self._hello(context, k)
            k = hello.client
            session = LiveSession(host, k, context)
            self.live.add(session)
            host.greet(k, session, hello.size, hello.holding if hello.HasField("holding") else None)
            await session.run()
        except Refusal as refusal:
            host.refused(k, refusal)
            await context.abort(CODES.get(refusal.reason, grpc.StatusCode.INVALID_ARGUMENT), str(refusal))
        finally:
            if session is not None:
                self.live.discard(session)
                session.end()
                host.part(session.client, session)

    def identify(self, context: Any) -> int | None:
        """Whose credential came with the call."""
        if self.credentials is None:
            return None
        for key, value in context.invocation_metadata() or ():
            if key == "authorization" and value.startswith("Bearer "):
                client = self.credentials.get(credential_digest(value.removeprefix("Bearer ")))
                if client is not None:
                    return client
        raise Refusal("credential", "no credential of this deployment came with the call")

    async def _hello(self, context: Any, expected: int | None) -> pb.Hello:
        try:
            async with asyncio.timeout(HELLO_SECONDS):
                data = await context.read()
        except TimeoutError:
            raise Refusal("malformed", "no Hello") from None
        if data is grpc.aio.EOF:
            raise Refusal("malformed", "no Hello")
        _, frame = split(data)
        if frame is None or frame.WhichOneof("body") != "hello":
            raise Refusal("malformed", "the first frame is not Hello")
        hello = frame.hello
        if hello.protocol != PROTOCOL:
            raise Refusal("agreement", f"this server speaks version {PROTOCOL} of the protocol, not {hello.protocol}")
        if expected is not None and hello.client != expected:
            raise Refusal("credential", f"the credential of client {expected} does not speak for client {hello.client}")
        if hello.client >= self.clients:
            raise Refusal("agreement", f"client {hello.client} of {self.clients}, counted from 0")
        if hello.layout != self.layout:
            raise Refusal("agreement", "the layout of the weights is another one; use the same task everywhere")
        if hello.learning != self.learning:
            raise Refusal("agreement", "task, training or seed differ; use the same scenario everywhere")
        most = min(self.host.config.deploy.max_client_data or MOST_DATA, MOST_DATA)
        if not 0 < hello.size <= most:
            raise Refusal("agreement", f"a client with {hello.size:,} data points; 1 to {most:,} are allowed")
        return hello

    async def watch(self, stall: float) -> None:
        """Disconnect whoever stopped reading, or stopped in the middle of a message, or takes too long for it."""
        while True:
            await asyncio.sleep(min(1.0, stall / 4))
            now = time.monotonic()
            for session in list(self.live):
                complaint = session.stalled(now, stall)
                if complaint is not None:
                    self.host.metrics.refused("stalled")
                    self.host.log.warning("stalled", client=session.client, detail=complaint)
                    session.close(complaint)


class LiveSession:
    """A client's connection, while it lasts."""

    def __init__(self, host: Host, client: int, context: Any) -> None:
        self.host, self.client, self.context = host, client, context
        self._notes: deque[bytes] = deque()
        self._model: tuple[bytes, Vector] | None = None  # to be sent; the newest takes the place of an older one
        self._model_bytes = 4 * host.buffers.parameters
        self._news = asyncio.Event()
        self._sending = False
        self._handing_over = False  # an answer; the reply, if it comes at once, is sent by whoever read the answer
        self._closed: str | None = None
        self._reading_since: float | None = None
        self._read_by = 0.0  # when the message that is being read must be complete
        self._writing_since: float | None = None
        self._task = asyncio.current_task()
        self._sender = asyncio.create_task(self._send())
        self._sender.add_done_callback(self._sender_ended)

    def give(self, body: bytes, weights: Vector | None) -> None:
        """Send this when the client is ready for it."""
        if weights is None:
            self._notes.append(body)
        else:
            self._model = body, weights
        if not self._handing_over:
            self._news.set()

    def close(self, reason: str) -> None:
        """Abort the stream."""
        if self._closed is None and self._task is not None:
            self._closed = reason
            self._task.cancel()

    def _sender_ended(self, sender: asyncio.Task[None]) -> None:
        """A sender that failed must not leave a client waiting for ever."""
        error = None if sender.cancelled() else sender.exception()
        if error is not None:
            self.host.log.error("sender-failed", client=self.client, error=repr(error))
            self.close("the server could not send")

    def end(self) -> None:
        """The stream is over."""
        self._sender.cancel()
        self._model = None

    async def farewell(self, body: bytes) -> None:
        """Send a last word, and wait until it is sent."""
        self._model = None
        self._notes.append(body)
        self._news.set()
        while (self._notes or self._sending) and not self._sender.done():
            await asyncio.sleep(0.005)
        self.close("")

    def stalled(self, now: float, stall: float) -> str | None:
        """What is wrong if something goes on without any progress, or with too little."""
        for since in (self._reading_since, self._writing_since):
            if since is not None and since < now - stall:
                return "nothing was read or written for too long"
        if self._reading_since is not None and now > self._read_by:
            return "a model arrived more slowly than slowest-mbit allows"
        return None

    async def run(self) -> None:
        """Read answers until the client, or the server, has had enough."""
        try:
            await self._read()
        except asyncio.CancelledError:
            if self._reading_since is not None:
                self.host.refused(self.client, Refusal("truncated", "the connection broke in the middle of a message"))
            if self._closed is None:
                raise  # the connection is gone
            if self._task is not None:
                self._task.uncancel()
            if self._closed:
                await self.context.abort(grpc.StatusCode.ABORTED, self._closed)

    async def _read(self) -> None:
        host, k, read = self.host, self.client, self.context.read
        while True:
            data = await read()
            if data is grpc.aio.EOF:
                return
            chunk, frame = split(data)
            kind = None if frame is None else frame.WhichOneof("body")
            if kind == "goodbye":
                host.leave(k, self)
                return
            if frame is None or kind != "answer":
                raise Refusal("malformed", "neither an answer nor a goodbye")
            ticket = frame.answer.ticket
            host.ledger.check(k, ticket)
            size = len(data)
            if host.draining:
                await asyncio.Event().wait()  # until the farewell; the client will offer this again
            if chunk is not None and len(chunk) == self._model_bytes:
                self._hand_over(ticket, in_one_piece(chunk, host.config.deploy.max_norm), None)
            else:
                size += await self._receive(ticket, chunk)
            host.tally.carried("client-to-server", "update", size)
            host.metrics.received("update", size)
            del chunk, data
            if self._model is not None or self._notes:
                try:
                    await self._flush()
                except STREAM_OVER:
                    return

    async def _receive(self, ticket: pb.Ticket, chunk: memoryview | None) -> int:
        """Receive the rest of a model whose first chunk is here, and return how many bytes that was."""
        host, deploy = self.host, self.host.config.deploy

        async def read() -> object:
            self._reading_since = time.monotonic()
            return await self.context.read()

        vector = await host.buffers.take()
        try:
            self._reading_since = time.monotonic()
            self._read_by = (
                self._reading_since + deploy.stall_timeout + self._model_bytes * 8 / (deploy.slowest_mbit * 1e6)
            )
            size = await receive(read, chunk, vector, deploy.max_norm)
            self._reading_since = None
            if host.draining:
                await asyncio.Event().wait()
            self._hand_over(ticket, vector, host.buffers.free)
        except BaseException:
            host.buffers.free()
            raise
        return size

    def _hand_over(self, ticket: pb.Ticket, vector: Vector, done: Callable[[], None] | None) -> None:
        self._handing_over = True
        try:
            self.host.answer(self.client, ticket, vector, done)
        finally:
            self._handing_over = False

    async def _send(self) -> None:
        """Send what there is to send, whenever there is something."""
        try:
            while True:
                await self._news.wait()
                self._news.clear()  # before the flush: while another one is under way this must wait again, not spin
                await self._flush()
        except STREAM_OVER:
            return  # whoever reads the stream knows

    async def _flush(self) -> None:
        """Send everything that waits, unless that is being done already."""
        if self._sending:
            return
        self._sending = True
        try:
            while self._notes or self._model is not None:
                if self._notes:
                    await send(self._write, self._notes.popleft())
                elif self._model is not None:
                    (body, weights), self._model = self._model, None
                    size = await send(self._write, body, weights)
                    del weights
                    self.host.tally.carried("server-to-client", "model", size)
                    self.host.metrics.sent("model", size)
        finally:
            self._sending = False

    async def _write(self, frame: bytes) -> None:
        self._writing_since = time.monotonic()
        await self.context.write(frame)
        self._writing_since = None
