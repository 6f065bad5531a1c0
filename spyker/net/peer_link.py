"""A server's connections to another one. :mod:`~spyker.net.peer_port` is the other end.

Messages of the outbox and control messages have a connection each. On one connection, heartbeats would wait behind the
models in the sender's socket buffer, and with large models on slow links all servers would suspect each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from spyker.net import spyker_pb2 as pb
from spyker.net.backoff import Backoff
from spyker.net.channels import PEERS_CONNECT, PEERS_CONTROL, channel, open_stream
from spyker.net.client_identity import new_nonce
from spyker.net.driver import Driver
from spyker.net.frames import PROTOCOL, send, split
from spyker.net.peer_signatures import ANSWER, CALL, REFUSAL, is_signed, refusal_content, sign_peer
from spyker.net.streams import CONNECTION_LOST, end_status, read_body, read_frame
from spyker.net.wire import fill
from spyker.node.control_messages import PeerHandshake, from_json, read_handshake, to_json
from spyker.node.ed25519_keys import server_name
from spyker.node.events import PeerAcknowledged, PeerConnected, PeerPortClosed, RejectedByPeer
from spyker.node.rejection import Rejection

HANDSHAKE_SECONDS = 10.0
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 2.0  # seconds between two attempts to connect
REFUSED = "Connection refused"  # in gRPC's reason
SLOW = 3.0  # a frame that takes this multiple of the slowest one does not arrive


class WrongPeer(Rejection):
    """A different server answers at the address."""

    def __init__(self, answered: int) -> None:
        super().__init__("wrong-server", f"server {answered} answers")
        self.answered = answered


class PeerLink:
    """Sends messages and control messages to one other server, and reconnects whenever the connection breaks."""

    def __init__(
        self,
        driver: Driver,
        peer: int,
        address: str,
        *,
        credentials: grpc.ChannelCredentials | None,
        keepalive: float,
        stall: float,
        server_at: Callable[[str], Awaitable[int | None]] | None = None,
    ) -> None:
        """``server_at`` returns the server whose certificate is presented at an address, for error messages."""
        self.driver, self.peer, self.address = driver, peer, address
        self.credentials, self.keepalive, self.stall = credentials, keepalive, stall
        self.server_at = server_at
        self._last_error = ""
        self._sent = 0  # number of the last message that was sent over this connection, or that the peer had
        self._limit: asyncio.Timeout | None = None  # of the connection for messages, once it is there
        self._progress = 0.0  # when something was last sent or acknowledged there
        self._slowest = 0.0  # seconds that a frame took

    async def run(self) -> None:
        """Stay connected until cancelled."""
        await asyncio.gather(self._stay_connected(), self._stay_connected_for_control())

    async def _stay_connected(self) -> None:
        backoff = Backoff(FIRST_PAUSE, LONGEST_PAUSE)
        patience = max(self.keepalive / 2, self.stall)  # pings wait behind models
        name = server_name(self.peer)
        async with channel(self.address, self.keepalive, self.credentials, name, patience=patience) as connection:
            while True:
                try:
                    async with asyncio.timeout(None) as limit:
                        await self._send_messages(open_stream(connection, PEERS_CONNECT), backoff, limit)
                except CONNECTION_LOST as error:
                    await self._log_error(error)
                await backoff.wait()

    async def _stay_connected_for_control(self) -> None:
        """Send control messages. Errors are those of the other connection, which reports them."""
        backoff, driver, name = Backoff(FIRST_PAUSE, LONGEST_PAUSE), self.driver, server_name(self.peer)
        while True:
            called_at = driver.now()
            try:
                # A channel for each attempt: between its own attempts, gRPC repeats the error of an earlier one.
                async with channel(self.address, self.keepalive, self.credentials, name) as connection:
                    await self._send_control(open_stream(connection, PEERS_CONTROL), backoff)
            except CONNECTION_LOST as error:
                if REFUSED in end_status(error)[1]:
                    driver.deliver(PeerPortClosed(self.peer, called_at, now=driver.now()))
            await backoff.wait()

    async def _log_error(self, error: BaseException) -> None:
        """Log the error of a connection, unless it is the same as at the last attempt."""
        _, details = end_status(error)
        before, self._last_error = self._last_error, details
        if details == before:
            return
        about: dict[str, Any] = {"peer": self.peer, "address": self.address}
        answered = error.answered if isinstance(error, WrongPeer) else None
        if answered is None and self.server_at is not None:
            answered = await self.server_at(self.address)  # TLS reports only that it is not the expected server
        if answered is None or answered == self.peer:
            self.driver.log.warning("link-down", **about, error=details)
            return
        self.driver.log.error(
            "wrong-server",
            **about,
            field=f"deploy.peers[{self.peer}]",
            expected=self.peer,
            actual=answered,
            error=f"deploy.peers[{self.peer}] is {self.address}, where server {answered} answers instead of "
            f"server {self.peer}. Nothing was sent to it. Correct that address and restart this server",
        )

    async def _send_messages(self, stream: Any, backoff: Backoff, limit: asyncio.Timeout) -> None:
        driver, node = self.driver, self.driver.node
        news = driver.news[self.peer]
        reader = None
        try:
            called_at = driver.now()
            handshake, received = await self._greet(stream)
            driver.deliver(PeerConnected(self.peer, handshake, received, called_at, now=driver.now()))
            self._sent, self._limit, self._progress = received, limit, driver.now()
            self._last_error = ""
            backoff.reset()
            self.driver.log.info("link-up", peer=self.peer, address=self.address)
            reader = asyncio.create_task(self._read_acks(stream))

            async def write(frame: bytes) -> None:
                self._progress = began = driver.now()
                await self._write(stream, frame)
                self._progress = driver.now()
                self._slowest = max(self._slowest, self._progress - began)

            while not reader.done():
                news.clear()
                while (entry := node.next_for(self.peer, self._sent)) is not None:
                    self._sent = entry.sequence
                    frame, kind = pb.Frame(), entry.message.kind
                    frame.peer.sequence, frame.peer.epoch = entry.sequence, node.view.epoch
                    arrays, body = fill(frame.peer.content, entry.message), frame.SerializeToString()
                    self._count(kind, await send(write, body, arrays))
                    del entry, arrays
                waiting = asyncio.create_task(news.wait())
                await asyncio.wait((waiting, reader), return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
            await reader
        finally:
            self._limit = None
            if reader is not None:
                reader.cancel()
            stream.cancel()

    def _hello(self, challenge: bytes, nonce: bytes) -> pb.PeerHello:
        """Return the hello in answer to a challenge."""
        node = self.driver.node
        handshake = to_json(node.handshake(self.peer))
        return pb.PeerHello(
            protocol=PROTOCOL,
            layout=node.options.layout,
            deployment=node.options.deployment,
            handshake=handshake,
            to=self.peer,
            nonce=nonce,
            signature=sign_peer(node.membership.keys, CALL, node.id, self.peer, challenge, handshake),
        )

    def _answer(self, data: bytes, nonce: bytes) -> pb.PeerWelcome:
        """Return the welcome; or pass a refusal to the node, and raise it."""
        _, frame = split(data)
        if frame is None or frame.WhichOneof("body") not in ("peer_welcome", "peer_refusal"):
            raise Rejection("malformed", "expected peer_welcome")
        if frame.WhichOneof("body") == "peer_welcome":
            return frame.peer_welcome
        said, node, now = frame.peer_refusal, self.driver.node, self.driver.now()
        content = refusal_content(said.reason, said.detail, said.evidence)
        signed = REFUSAL, self.peer, node.id, nonce, content, said.signature
        lineage = said.lineage if is_signed(node.membership.keys, said.lineage, *signed) else ""
        evidence = from_json(said.evidence) if said.evidence else None
        self.driver.deliver(RejectedByPeer(self.peer, said.reason, said.detail, lineage, evidence, now=now))
        if said.reason == "duplicate":
            self.driver.told_of_duplicate.set()
        raise Rejection(said.reason, said.detail)

    async def _greet(self, stream: Any) -> tuple[PeerHandshake, int]:
        """Exchange handshakes, and return that of the other server and the last message from here that it has."""
        node, nonce = self.driver.node, new_nonce()
        async with asyncio.timeout(HANDSHAKE_SECONDS):
            challenge = await read_body(stream, "challenge")
            if challenge.protocol != PROTOCOL:
                problem = f"server {self.peer} speaks version {challenge.protocol}, not {PROTOCOL}"
                raise Rejection("protocol", problem)
            await stream.write(pb.Frame(peer_hello=self._hello(challenge.nonce, nonce)).SerializeToString())
            welcome = self._answer(await read_frame(stream), nonce)
        if welcome.server != self.peer:
            raise WrongPeer(welcome.server)
        handshake = read_handshake(welcome.handshake)
        signed = ANSWER, self.peer, node.id, nonce, welcome.handshake, welcome.signature
        if not is_signed(node.membership.keys, handshake.lineage, *signed):
            raise Rejection("identity", f"server {self.peer} has not proven its lineage")
        return handshake, welcome.received

    async def _send_control(self, stream: Any, backoff: Backoff) -> None:
        """Send control messages as they come.

        If the network has lost both connections, this one notices it sooner. Once it is back, it ends the other one
        unless that makes progress.
        """
        control, news = self.driver.control[self.peer], self.driver.control_news[self.peer]
        ended = None
        try:
            await self._greet(stream)
            if self._limit is not None and self._stuck():
                self._limit.reschedule(asyncio.get_running_loop().time())
            control.clear()
            backoff.reset()
            ended = asyncio.create_task(read_frame(stream))  # the other server sends nothing
            while not ended.done():
                news.clear()
                while control:
                    frame = pb.Frame(control=pb.Control(json=to_json(control.popleft())))
                    await self._write(stream, frame.SerializeToString())
                waiting = asyncio.create_task(news.wait())
                await asyncio.wait((waiting, ended), return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
            await ended
        finally:
            if ended is not None:
                ended.cancel()
            stream.cancel()

    def _stuck(self) -> bool:
        """Return whether the connection for messages makes no progress, compared with its slowest write so far."""
        quiet = self.driver.now() - self._progress
        if quiet <= max(self.keepalive, SLOW * self._slowest):
            return False
        self._slowest = max(self._slowest, quiet)  # if the link is just slow, the next one has longer
        return True

    async def _write(self, stream: Any, frame: bytes) -> None:
        async with asyncio.timeout(self.stall):
            await stream.write(frame)

    def _count(self, kind: str, size: int) -> None:
        self.driver.recorder.carried("server-to-server", kind, size)
        self.driver.metrics.sent(kind, size)

    async def _read_acks(self, stream: Any) -> None:
        driver = self.driver
        outbox = driver.node.outboxes[self.peer]
        while driver.node.outboxes.get(self.peer) is outbox:  # else the peer was replaced, and has another one
            ack = await read_body(stream, "ack")
            self._progress = driver.now()
            if ack.sequence > self._sent:
                raise Rejection("malformed", f"an acknowledgement of message {ack.sequence}, which was not sent")
            if driver.node.outboxes.get(self.peer) is outbox:
                driver.deliver(PeerAcknowledged(self.peer, ack.sequence, now=driver.now()))
