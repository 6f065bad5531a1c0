"""A server's connection to another one, for its outbox. :mod:`~spyker.net.peer_port` is the other end."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from spyker.net import spyker_pb2 as pb
from spyker.net.backoff import Backoff
from spyker.net.channels import PEERS_CONNECT, channel, open_stream
from spyker.net.client_identity import new_nonce
from spyker.net.driver import Driver
from spyker.net.frames import PROTOCOL, send, split
from spyker.net.peer_signatures import ANSWER, CALL, REFUSAL, is_signed, refusal_content, sign_peer
from spyker.net.streams import CONNECTION_LOST, end_status, read_body, read_frame
from spyker.net.wire import fill
from spyker.node.control_messages import ControlMessage, from_json, read_handshake, to_json
from spyker.node.ed25519_keys import server_name
from spyker.node.events import PeerAcknowledged, PeerConnected, RejectedByPeer
from spyker.node.rejection import Rejection

HANDSHAKE_SECONDS = 10.0
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 2.0  # seconds between two attempts to connect


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

    async def run(self) -> None:
        """Stay connected until cancelled."""
        backoff = Backoff(FIRST_PAUSE, LONGEST_PAUSE)
        async with channel(self.address, self.keepalive, self.credentials, server_name(self.peer)) as connection:
            while True:
                try:
                    await self._speak(open_stream(connection, PEERS_CONNECT), backoff)
                except CONNECTION_LOST as error:
                    await self._log_error(error)
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

    async def _speak(self, stream: Any, backoff: Backoff) -> None:
        driver, node = self.driver, self.driver.node
        news, control = driver.news[self.peer], driver.control[self.peer]
        reader = None
        try:
            called_at, nonce = driver.now(), new_nonce()
            async with asyncio.timeout(HANDSHAKE_SECONDS):
                challenge = await read_body(stream, "challenge")
                if challenge.protocol != PROTOCOL:
                    raise Rejection(
                        "protocol", f"server {self.peer} speaks version {challenge.protocol}, not {PROTOCOL}"
                    )
                hello = self._hello(challenge.nonce, nonce)
                await stream.write(pb.Frame(peer_hello=hello).SerializeToString())
                welcome = self._answer(await read_frame(stream), nonce)
            if welcome.server != self.peer:
                raise WrongPeer(welcome.server)
            handshake = read_handshake(welcome.handshake)
            signed = ANSWER, self.peer, node.id, nonce, welcome.handshake, welcome.signature
            if not is_signed(node.membership.keys, handshake.lineage, *signed):
                raise Rejection("identity", f"server {self.peer} has not proven its lineage")
            driver.deliver(PeerConnected(self.peer, handshake, welcome.received, called_at, now=driver.now()))
            self._sent = welcome.received
            control.clear()
            self._last_error = ""
            backoff.reset()
            self.driver.log.info("link-up", peer=self.peer, address=self.address)
            reader = asyncio.create_task(self._read_acks(stream))

            async def write(frame: bytes) -> None:
                """Write a frame, then control messages: these do not wait for the end of a large message."""
                await self._write(stream, frame)
                await self._send_control(stream, control)

            while not reader.done():
                news.clear()
                await self._send_control(stream, control)
                while (posted := node.next_for(self.peer, self._sent)) is not None:
                    self._sent = posted.sequence
                    frame, kind = pb.Frame(), posted.message.kind
                    frame.peer.sequence, frame.peer.epoch = posted.sequence, node.view.epoch
                    arrays, body = fill(frame.peer.content, posted.message), frame.SerializeToString()
                    self._count(kind, await send(write, body, arrays))
                    del posted, arrays
                if control:
                    continue
                waiting = asyncio.create_task(news.wait())
                await asyncio.wait((waiting, reader), return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
            await reader
        finally:
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
        raise Rejection(said.reason, said.detail)

    async def _send_control(self, stream: Any, control: deque[ControlMessage]) -> None:
        while control:
            control_frame = pb.Frame(control=pb.Control(json=to_json(control.popleft())))
            await self._write(stream, control_frame.SerializeToString())

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
            if ack.sequence > self._sent:
                raise Rejection("malformed", f"an acknowledgement of message {ack.sequence}, which was not sent")
            if driver.node.outboxes.get(self.peer) is outbox:
                driver.deliver(PeerAcknowledged(self.peer, ack.sequence, now=driver.now()))
