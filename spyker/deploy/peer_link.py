"""The connection by which a server tells another one what is in the outbox; :mod:`~spyker.deploy.peer_port` is the
other end of it.
"""

from __future__ import annotations

import asyncio
from typing import Any

import grpc

from spyker.deploy import spyker_pb2 as pb
from spyker.deploy.backoff import Backoff
from spyker.deploy.channels import LINK, channel, open_stream
from spyker.deploy.driver import Driver
from spyker.deploy.frames import PROTOCOL, send
from spyker.deploy.streams import CONNECTION_LOST, read_body, why
from spyker.deploy.wire import fill
from spyker.host.refusal import Refusal, RolledBack

HANDSHAKE_SECONDS = 10.0
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 2.0  # seconds between two attempts to connect


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
        log, backoff = self.driver.log, Backoff(FIRST_PAUSE, LONGEST_PAUSE)
        async with channel(self.address, self.keepalive, self.credentials) as connection:
            while True:
                try:
                    await self._speak(open_stream(connection, LINK), backoff)
                except RolledBack as refusal:
                    log.error("link-refused", peer=self.peer, address=self.address, error=str(refusal))
                    return
                except CONNECTION_LOST as error:
                    _, said = why(error)
                    if said != self._complaint:  # once, not at every attempt
                        self._complaint = said
                        log.warning("link-down", peer=self.peer, address=self.address, error=said)
                await backoff.wait()

    async def _speak(self, stream: Any, backoff: Backoff) -> None:
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
            backoff.reset()
            self.driver.log.info("link-up", peer=self.peer, address=self.address)
            reader = asyncio.create_task(self._read_acks(stream))
            while not reader.done():
                news.clear()
                while (posted := host.next_for(self.peer)) is not None:
                    frame, kind = pb.Frame(), posted.message.kind
                    frame.peer.sequence = posted.sequence
                    arrays, body = fill(frame.peer.content, posted.message), frame.SerializeToString()
                    self._sent(kind, await send(lambda frame: self._write(stream, frame), body, arrays))
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
