"""The border to the other servers: what :class:`~spyker.deploy.peers.Link` of another process talks to."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import grpc
import grpc.aio

from spyker.deploy import spyker_pb2 as pb
from spyker.deploy.certificates import server_of
from spyker.deploy.frames import PROTOCOL, Refusal, receive, split
from spyker.deploy.host import Arrival, Host
from spyker.deploy.peers import HANDSHAKE_SECONDS, carries_model, check_message, from_wire, kinds_between
from spyker.vectors import Vector


class Reception:
    """Takes the messages of other servers and acknowledges them once they are saved."""

    def __init__(
        self,
        host: Host,
        *,
        algorithm: str,
        servers: int,
        layout: bytes,
        deployment: bytes,
        lineage: str,
        secure: bool,
    ) -> None:
        self.host, self.servers, self.layout, self.deployment = host, servers, layout, deployment
        self.algorithm, self.lineage = algorithm, lineage
        self.secure = secure
        self._present: dict[int, asyncio.Task[Any] | None] = {}

    async def link(self, requests: object, context: Any) -> None:
        """One stream, from PeerHello to its end."""
        try:
            hello = await self._hello(context)
            j = hello.server
            before, self._present[j] = self._present.get(j), asyncio.current_task()
            if before is not None:
                before.cancel()  # the same server came again, so that connection is dead
            welcome = pb.PeerWelcome(protocol=PROTOCOL, received=self.host.received.get(j, 0), lineage=self.lineage)
            await context.write(pb.Frame(peer_welcome=welcome).SerializeToString())
            acks = asyncio.create_task(self._acknowledge(j, context))
            try:
                await self._read(j, context)
            finally:
                acks.cancel()
                if self._present.get(j) is asyncio.current_task():
                    del self._present[j]
        except Refusal as refusal:
            self.host.metrics.refused(refusal.reason)
            self.host.log.warning("peer-refused", reason=refusal.reason, detail=str(refusal))
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(refusal))

    async def _hello(self, context: Any) -> pb.PeerHello:
        try:
            async with asyncio.timeout(HANDSHAKE_SECONDS):
                data = await context.read()
        except TimeoutError:
            raise Refusal("malformed", "no PeerHello") from None
        _, frame = (None, None) if data is grpc.aio.EOF else split(data)
        if frame is None or frame.WhichOneof("body") != "peer_hello":
            raise Refusal("malformed", "the first frame is not PeerHello")
        hello, host = frame.peer_hello, self.host
        if hello.protocol != PROTOCOL:
            raise Refusal("agreement", f"this server speaks version {PROTOCOL} of the protocol, not {hello.protocol}")
        if self.secure:
            caller = server_of(context.auth_context())
            if caller != hello.server:
                raise Refusal("certificate", f"the certificate of server {caller} does not speak for {hello.server}")
        if hello.server == host.id or hello.server >= self.servers:
            raise Refusal("agreement", f"there is no other server {hello.server} here")
        if hello.layout != self.layout or hello.deployment != self.deployment:
            raise Refusal("agreement", "the scenarios of the servers differ; use the same one everywhere")
        known = host.lineages.setdefault(hello.server, hello.lineage)
        if known != hello.lineage:
            raise Refusal(
                "lineage",
                f"server {hello.server} has lost its state and began anew; resume it from a checkpoint, or begin anew "
                "with all servers",
            )
        return hello

    async def _read(self, j: int, context: Any) -> None:
        host = self.host
        kinds = kinds_between(self.algorithm, self.servers, j, host.id)
        while True:
            data = await context.read()
            if data is grpc.aio.EOF:
                return
            chunk, frame = split(data)
            if frame is None or frame.WhichOneof("body") != "peer":
                raise Refusal("malformed", "not a message between servers")
            peer, size, vector = frame.peer, len(data), None
            check_message(peer, kinds, self.servers)
            if carries_model(peer):
                vector, more = await self._weights(context, chunk)
                size += more
            kind = peer.WhichOneof("kind") or ""
            host.metrics.received(kind, size)
            if peer.sequence <= host.received.get(j, 0):
                continue  # it came before the connection broke
            if host.draining:
                await asyncio.Event().wait()  # until the stream is ended; it will be sent again
            message = from_wire(peer, vector)
            host.received[j] = peer.sequence
            done = asyncio.Event()
            host.arrive(Arrival(j, message, peer.sequence, done=done.set, peer=True))
            del message, vector, chunk, data
            await done.wait()  # one at a time: a peer that is faster than we are has to wait

    async def _weights(self, context: Any, chunk: memoryview | None) -> tuple[Vector, int]:
        """Receive the rest of a model whose first chunk is here, and say how many bytes that was."""
        vector = self.host.buffers.vector()
        return vector, await receive(context.read, chunk, vector)

    async def _acknowledge(self, j: int, context: Any) -> None:
        news, told = asyncio.Event(), 0
        self.host.on_saved.append(news.set)
        try:
            with contextlib.suppress(grpc.aio.UsageError, asyncio.InvalidStateError):
                while True:
                    sequence = self.host.acknowledged.get(j, 0)
                    if sequence > told:
                        await context.write(pb.Frame(ack=pb.Ack(sequence=sequence)).SerializeToString())
                        told = sequence
                    news.clear()
                    if self.host.acknowledged.get(j, 0) == told:
                        await news.wait()
        finally:
            self.host.on_saved.remove(news.set)
