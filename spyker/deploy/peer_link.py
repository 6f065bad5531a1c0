"""The connection by which a server tells another one what is in the outbox; :mod:`~spyker.deploy.peer_port` is the
other end of it.
"""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import grpc.aio

from spyker.deploy import spyker_pb2 as pb
from spyker.deploy.channels import LINK, channel, open_stream
from spyker.deploy.driver import Driver
from spyker.deploy.frames import PROTOCOL, send, split
from spyker.deploy.wire import outgoing
from spyker.host.refusal import Refusal, RolledBack

RETRY_SECONDS = 0.5
HANDSHAKE_SECONDS = 10.0
LINK_DOWN = (
    TimeoutError,
    grpc.aio.AioRpcError,
    grpc.aio.UsageError,
    grpc.aio.InternalError,  # what a write raises depends on the moment at which the other side ended the stream
    asyncio.InvalidStateError,
    Refusal,
)


class PeerLink:
    """Tells one other server what it may know. Comes back whenever it breaks."""

    def __init__(
        self,
        driver: Driver,
        peer: int,
        address: str,
        hello: pb.PeerHello,
        *,
        credentials: grpc.ChannelCredentials | None,
        keepalive: float,
        stall: float,
    ) -> None:
        self.driver, self.peer, self.address, self.hello = driver, peer, address, hello
        self.credentials, self.keepalive, self.stall = credentials, keepalive, stall
        self._complaint = ""

    async def run(self) -> None:
        """Keep the other server informed, for ever, unless one of the two was rolled back."""
        log = self.driver.log
        async with channel(self.address, self.keepalive, self.credentials) as connection:
            while True:
                try:
                    await self._speak(open_stream(connection, LINK))
                except RolledBack as refusal:
                    log.error("link-refused", peer=self.peer, address=self.address, error=str(refusal))
                    return
                except LINK_DOWN as error:
                    said = error.details() if isinstance(error, grpc.aio.AioRpcError) else repr(error)
                    if said != self._complaint:  # once, not twice a second
                        self._complaint = str(said)
                        log.warning("link-down", peer=self.peer, address=self.address, error=said)
                await asyncio.sleep(RETRY_SECONDS)

    async def _speak(self, stream: Any) -> None:
        host, news = self.driver.host, self.driver.news[self.peer]
        reader = None
        try:
            async with asyncio.timeout(HANDSHAKE_SECONDS):
                await stream.write(pb.Frame(peer_hello=self.hello).SerializeToString())
                welcome = await read_body(stream, "peer_welcome")
            if welcome.protocol != PROTOCOL:
                raise Refusal("protocol", f"server {self.peer} speaks version {welcome.protocol}, not {PROTOCOL}")
            host.know(self.peer, welcome.lineage)
            host.outboxes[self.peer].connected(self.peer, welcome.received)
            self._complaint = ""
            self.driver.log.info("link-up", peer=self.peer, address=self.address)
            reader = asyncio.create_task(self._read_acks(stream))
            while not reader.done():
                news.clear()
                while (posted := host.next_for(self.peer)) is not None:
                    content, arrays = outgoing(posted.message)
                    body = pb.Frame(peer=pb.Peer(sequence=posted.sequence, content=content)).SerializeToString()
                    self._sent(content.kind, await send(lambda frame: self._write(stream, frame), body, arrays))
                    del posted, arrays
                waiting = asyncio.create_task(news.wait())
                await asyncio.wait((waiting, reader), return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
            await reader
        finally:
            if reader is not None:
                reader.cancel()
            stream.cancel()

    async def _write(self, stream: Any, frame: bytes) -> None:
        async with asyncio.timeout(self.stall):
            await stream.write(frame)

    def _sent(self, kind: str, size: int) -> None:
        self.driver.tally.carried("server-to-server", kind, size)
        self.driver.metrics.sent(kind, size)

    async def _read_acks(self, stream: Any) -> None:
        outbox = self.driver.host.outboxes[self.peer]
        while True:
            ack = await read_body(stream, "ack")
            if ack.sequence > outbox.sent:
                raise Refusal("malformed", f"an acknowledgement of message {ack.sequence}, which was not sent")
            outbox.acknowledge(ack.sequence)


async def read_body(stream: Any, kind: str) -> Any:
    """Read a frame that must have a body of this kind."""
    data = await stream.read()
    if data is grpc.aio.EOF:
        code, said = await stream.code(), await stream.details()
        raise Refusal("ended", f"the other side ended the stream ({code.name.lower()}: {said})")
    _, frame = split(data)
    if frame is None or frame.WhichOneof("body") != kind:
        raise Refusal("malformed", f"expected {kind}")
    return getattr(frame, kind)
