"""The port for other servers, which :class:`~spyker.net.peer_link.PeerLink` of another process calls."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import grpc
import grpc.aio

from spyker.net import spyker_pb2 as pb
from spyker.net.certificates import server_of
from spyker.net.channels import PEERS_CONNECT, PEERS_CONTROL
from spyker.net.client_identity import new_nonce
from spyker.net.connection_limits import AuthenticatedPeers
from spyker.net.driver import Driver
from spyker.net.frames import PROTOCOL, split
from spyker.net.peer_link import HANDSHAKE_SECONDS
from spyker.net.peer_signatures import ANSWER, CALL, REFUSAL, is_signed, refusal_content, sign_peer
from spyker.net.streams import STREAM_OVER
from spyker.net.wire import MessageValidator
from spyker.node.control_messages import PeerHandshake, from_json, read_handshake, to_json
from spyker.node.ed25519_keys import fingerprint
from spyker.node.events import ControlReceived, PeerHelloReceived, PeerMessageReceived
from spyker.node.rejection import Rejection
from spyker.protocol.codec import Sizes
from spyker.protocol.messages import PeerMessage


class PeerPort:
    """Receives messages of other servers, and acknowledges them once their effects are saved."""

    def __init__(
        self,
        driver: Driver,
        sizes: Sizes,
        kinds: Callable[[int], tuple[type[PeerMessage], ...]],
        authenticated: AuthenticatedPeers | None = None,
        *,
        secure: bool,
    ) -> None:
        """``kinds`` returns the message types that a server may send; ``authenticated`` is told the connections."""
        self.driver, self.sizes, self.kinds, self.secure = driver, sizes, kinds, secure
        self.authenticated = AuthenticatedPeers() if authenticated is None else authenticated
        self._present: dict[tuple[int, str], asyncio.Task[Any] | None] = {}  # by server and method
        self._contexts: dict[tuple[int, str], Any] = {}
        self._endings: set[asyncio.Future[None]] = set()

    async def link(self, requests: object, context: Any) -> None:
        """Serve one stream of messages, from PeerHello to its end."""
        await self._serve(context, PEERS_CONNECT, self._read_messages)

    async def control(self, requests: object, context: Any) -> None:
        """Serve one stream of control messages, from PeerHello to its end."""
        await self._serve(context, PEERS_CONTROL, self._read_control)

    async def _serve(self, context: Any, method: str, read: Callable[[int, Any], Awaitable[None]]) -> None:
        hello: pb.PeerHello | None = None
        try:
            nonce = new_nonce()
            challenge = pb.Challenge(protocol=PROTOCOL, server=self.driver.node.id, nonce=nonce)
            await context.write(pb.Frame(challenge=challenge).SerializeToString())
            hello = await self._hello(context)
            node = self.driver.node
            if hello.to != node.id:  # the caller has a wrong address: it is told which server this is, and nothing else
                wrong = pb.PeerWelcome(protocol=PROTOCOL, server=node.id)
                await context.write(pb.Frame(peer_welcome=wrong).SerializeToString())
                return
            who = self._identify(hello, nonce, context)
            j = who.server
            self.driver.deliver(PeerHelloReceived(who, hello.layout, hello.deployment, now=self.driver.now()))
            received = node.received.get(j, 0)
            key, task = (j, method), asyncio.current_task()
            before, self._present[key] = self._present.get(key), task
            if before is not None:
                before.cancel()  # the same server has reconnected, so that connection is dead
            self._contexts[key] = context
            handshake = to_json(node.handshake(j))
            signature = sign_peer(node.membership.keys, ANSWER, node.id, j, hello.nonce, handshake)
            welcome = pb.PeerWelcome(
                protocol=PROTOCOL, received=received, handshake=handshake, server=node.id, signature=signature
            )
            hello = None  # it is answered
            await context.write(pb.Frame(peer_welcome=welcome).SerializeToString())
            try:
                with self.authenticated.streaming(context.peer()):
                    await read(j, context)
            finally:
                if self._present.get(key) is task:
                    del self._present[key]
        except Rejection as rejection:
            self.driver.metrics.rejected(rejection.reason)
            self.driver.limited_log.say(
                "warning", "peer-refused", rejection.reason, str(rejection), detail=str(rejection)
            )
            if hello is not None:
                with contextlib.suppress(*STREAM_OVER):
                    await context.write(pb.Frame(peer_refusal=self._refusal(hello, rejection)).SerializeToString())
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(rejection))

    def _refusal(self, hello: pb.PeerHello, rejection: Rejection) -> pb.PeerRefusal:
        """Return what the caller is told, with the evidence that the node has for it."""
        node = self.driver.node
        evidence = b"" if rejection.evidence is None else to_json(rejection.evidence)
        content = refusal_content(rejection.reason, rejection.detail, evidence)
        keys, caller = node.membership.keys, read_handshake(hello.handshake).server
        return pb.PeerRefusal(
            reason=rejection.reason,
            detail=rejection.detail,
            evidence=evidence,
            lineage=keys.lineage,
            signature=sign_peer(keys, REFUSAL, node.id, caller, hello.nonce, content),
        )

    async def _hello(self, context: Any) -> pb.PeerHello:
        """Read the hello."""
        try:
            async with asyncio.timeout(HANDSHAKE_SECONDS):
                data = await context.read()
        except TimeoutError:
            raise Rejection("malformed", "no PeerHello") from None
        _, frame = (None, None) if data is grpc.aio.EOF else split(data)
        if frame is None or frame.WhichOneof("body") != "peer_hello":
            raise Rejection("malformed", "the first frame is not PeerHello")
        hello = frame.peer_hello
        if hello.protocol != PROTOCOL:
            raise Rejection("mismatch", f"this server speaks version {PROTOCOL} of the protocol, not {hello.protocol}")
        read_handshake(hello.handshake)
        return hello

    def _identify(self, hello: pb.PeerHello, nonce: bytes, context: Any) -> PeerHandshake:
        """Return the handshake of the caller, whose certificate and lineage must be proven."""
        who, node = read_handshake(hello.handshake), self.driver.node
        if self.secure:
            auth = context.auth_context()
            caller = server_of(auth)
            if caller != who.server:
                raise Rejection("certificate", f"the certificate of server {caller} does not speak for {who.server}")
            if fingerprint(auth["x509_pem_cert"][0]) != who.announcement.certificate:
                raise Rejection("certificate", f"server {who.server} has announced another certificate than it uses")
        signed = CALL, who.server, node.id, nonce, hello.handshake, hello.signature
        if not is_signed(node.membership.keys, who.lineage, *signed):
            raise Rejection("identity", f"server {who.server} has not proven that its lineage is {who.lineage[:8]}")
        return who

    async def _read_control(self, j: int, context: Any) -> None:
        while (data := await context.read()) is not grpc.aio.EOF:
            _, frame = split(data)
            if frame is None or frame.WhichOneof("body") != "control":
                raise Rejection("malformed", "not a control message")
            self._check_present(j, PEERS_CONTROL)
            self.driver.deliver(ControlReceived(j, from_json(frame.control.json), now=self.driver.now()))

    def _check_present(self, j: int, method: str) -> None:
        """Raise a rejection unless this task serves the present connection of a server."""
        if self._present.get((j, method)) is not asyncio.current_task():
            raise Rejection("epoch", f"server {j} was removed or replaced, or has reconnected")

    async def _read_messages(self, j: int, context: Any) -> None:
        acks = asyncio.create_task(self._acknowledge(j, context))
        try:
            await self._read(j, context)
        finally:
            acks.cancel()

    async def _read(self, j: int, context: Any) -> None:
        driver, node = self.driver, self.driver.node
        validator = MessageValidator(self.kinds(j), self.sizes)
        while (data := await context.read()) is not grpc.aio.EOF:
            chunk, frame = split(data)
            if frame is None or frame.WhichOneof("body") != "peer":
                raise Rejection("malformed", "not a message between servers")
            peer, size = frame.peer, len(data)
            if not 0 < peer.sequence < 1 << 53:
                raise Rejection("malformed", f"the sequence {peer.sequence}")
            incoming = validator.arrive(peer.content, chunk)
            if incoming.whole:
                message = incoming.now()
            else:
                message, more = await incoming.later(context.read, driver.buffers.vector)
                size += more
            if node.draining:
                await asyncio.Event().wait()  # until the stream ends; the peer will send this again
            self._check_present(j, PEERS_CONNECT)
            driver.metrics.received(message.kind, size)
            done = asyncio.Event()
            assert isinstance(message, PeerMessage)
            driver.deliver(
                PeerMessageReceived(j, peer.sequence, message, peer.epoch, receipt=done.set, now=driver.now())
            )
            del message, incoming, chunk, data, frame
            await done.wait()  # one at a time: backpressure

    def disconnect(self, servers: Iterable[int]) -> None:
        """End the streams of servers that were removed or replaced."""
        for j, method in itertools.product(servers, (PEERS_CONNECT, PEERS_CONTROL)):
            self._present.pop((j, method), None)
            context = self._contexts.pop((j, method), None)
            if context is not None:
                ending = asyncio.ensure_future(self._abort(j, context))
                self._endings.add(ending)
                ending.add_done_callback(self._endings.discard)

    async def _abort(self, j: int, context: Any) -> None:
        with contextlib.suppress(*STREAM_OVER):
            reason = f"epoch: server {j} was removed or replaced; reconnect"
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, reason)

    async def _acknowledge(self, j: int, context: Any) -> None:
        news, acknowledged = self.driver.acks[j], 0
        with contextlib.suppress(*STREAM_OVER):
            while True:
                news.clear()
                sequence = self.driver.node.acknowledged.get(j, 0)
                if sequence > acknowledged:
                    await context.write(pb.Frame(ack=pb.Ack(sequence=sequence)).SerializeToString())
                    acknowledged = sequence
                else:
                    await news.wait()
