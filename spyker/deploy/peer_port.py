"""The border to the other servers: what :class:`~spyker.deploy.peer_link.PeerLink` of another process talks to."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio

from spyker.deploy import spyker_pb2 as pb
from spyker.deploy.certificates import server_of
from spyker.deploy.driver import Driver
from spyker.deploy.frames import PROTOCOL, split
from spyker.deploy.peer_link import HANDSHAKE_SECONDS
from spyker.deploy.streams import STREAM_OVER
from spyker.deploy.wire import Border
from spyker.host.refusal import Refusal
from spyker.protocol.forms import Sizes
from spyker.protocol.messages import PeerMessage


class PeerPort:
    """Takes the messages of other servers and acknowledges them once they are saved."""

    def __init__(
        self, driver: Driver, sizes: Sizes, kinds: Callable[[int], tuple[type[PeerMessage], ...]], *, secure: bool
    ) -> None:
        """``kinds`` says what one other server may say."""
        self.driver, self.sizes, self.kinds, self.secure = driver, sizes, kinds, secure
        self._present: dict[int, asyncio.Task[Any] | None] = {}

    async def link(self, requests: object, context: Any) -> None:
        """One stream, from PeerHello to its end."""
        try:
            hello, received = await self._hello(context)
            j = hello.server
            before, self._present[j] = self._present.get(j), asyncio.current_task()
            if before is not None:
                before.cancel()  # the same server came again, so that connection is dead
            lineage = self.driver.host.rules.lineage
            welcome = pb.PeerWelcome(protocol=PROTOCOL, received=received, lineage=lineage)
            await context.write(pb.Frame(peer_welcome=welcome).SerializeToString())
            acks = asyncio.create_task(self._acknowledge(j, context))
            try:
                await self._read(j, context)
            finally:
                acks.cancel()
                if self._present.get(j) is asyncio.current_task():
                    del self._present[j]
        except Refusal as refusal:
            self.driver.metrics.refused(refusal.reason)
            self.driver.log.warning("peer-refused", reason=refusal.reason, detail=str(refusal))
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(refusal))

    async def _hello(self, context: Any) -> tuple[pb.PeerHello, int]:
        try:
            async with asyncio.timeout(HANDSHAKE_SECONDS):
                data = await context.read()
        except TimeoutError:
            raise Refusal("malformed", "no PeerHello") from None
        _, frame = (None, None) if data is grpc.aio.EOF else split(data)
        if frame is None or frame.WhichOneof("body") != "peer_hello":
            raise Refusal("malformed", "the first frame is not PeerHello")
        hello = frame.peer_hello
        if hello.protocol != PROTOCOL:
            raise Refusal("agreement", f"this server speaks version {PROTOCOL} of the protocol, not {hello.protocol}")
        if self.secure:
            caller = server_of(context.auth_context())
            if caller != hello.server:
                raise Refusal("certificate", f"the certificate of server {caller} does not speak for {hello.server}")
        return hello, self.driver.host.admit_peer(hello.server, hello.layout, hello.deployment, hello.lineage)

    async def _read(self, j: int, context: Any) -> None:
        driver, host = self.driver, self.driver.host
        border = Border(self.kinds(j), self.sizes)
        while True:
            data = await context.read()
            if data is grpc.aio.EOF:
                return
            chunk, frame = split(data)
            if frame is None or frame.WhichOneof("body") != "peer":
                raise Refusal("malformed", "not a message between servers")
            peer, size = frame.peer, len(data)
            if not 0 < peer.sequence < 1 << 53:
                raise Refusal("malformed", f"the sequence {peer.sequence}")
            incoming = border.arrive(peer.content, chunk)
            if incoming.whole:
                message = incoming.now()
            else:
                message, more = await incoming.later(context.read, driver.buffers.vector)
                size += more
            if host.draining:
                await asyncio.Event().wait()  # until the stream is ended; it will be sent again
            driver.metrics.received(message.kind, size)
            done = asyncio.Event()
            assert isinstance(message, PeerMessage)
            driver.tell(host.hear, j, peer.sequence, message, done.set)
            del message, incoming, chunk, data, frame
            await done.wait()  # one at a time: a peer that is faster than we are has to wait

    async def _acknowledge(self, j: int, context: Any) -> None:
        news, told = self.driver.acks[j], 0
        with contextlib.suppress(*STREAM_OVER):
            while True:
                news.clear()
                sequence = self.driver.host.acknowledged.get(j, 0)
                if sequence > told:
                    await context.write(pb.Frame(ack=pb.Ack(sequence=sequence)).SerializeToString())
                    told = sequence
                else:
                    await news.wait()
