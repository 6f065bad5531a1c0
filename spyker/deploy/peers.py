"""Messages between servers: each is delivered once, in order, and only if its sender cannot forget having sent it.

A message is numbered and put into the *outbox* for its receiver, which is part of the sender's checkpoints. It is sent
once a checkpoint on disk holds it, and stays in the outbox until the receiver says that a checkpoint of its own holds
the effect. Whatever breaks in between, connections or processes, it is sent again, and the receiver drops what it has.
So a crash takes a server back to a state that its peers may know of, for every algorithm, without their help.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio

from spyker.deploy import spyker_pb2 as pb
from spyker.deploy.channels import LINK, channel, open_stream
from spyker.deploy.frames import PROTOCOL, Refusal, send, split
from spyker.deploy.log import Log
from spyker.protocol.messages import Age, EdgeModel, PeerMessage, PeerModel, Token
from spyker.vectors import Vector

RETRY_SECONDS = 0.5
HANDSHAKE_SECONDS = 10.0
AGE_LIMIT = 1e15  # an age grows by one per update; up to here that makes a difference to a double
REMEDY = "Stop all servers, restore all from one backup or begin anew with all, and start them"
COUNT_LIMIT = 1 << 53  # whole numbers up to here are exact in JSON and in a double
LINK_DOWN = (
    TimeoutError,
    grpc.aio.AioRpcError,
    grpc.aio.UsageError,
    grpc.aio.InternalError,  # what a write raises depends on the moment at which the other side ended the stream
    asyncio.InvalidStateError,
    Refusal,
)


def to_wire(sequence: int, message: PeerMessage) -> tuple[bytes, Vector | None]:
    """A message as the body of a frame and the vector that follows it, if any."""
    peer = pb.Peer(sequence=sequence)
    vector = None
    match message:
        case Age():
            peer.age.age = message.age
            peer.age.SetInParent()
        case Token():
            peer.token.CopyFrom(pb.Token(epoch=message.epoch, bid=message.bid, ages=message.ages))
        case PeerModel():
            peer.model.CopyFrom(pb.PeerModel(age=message.age, bid=message.bid))
            vector = message.weights
        case EdgeModel():
            peer.edge.CopyFrom(pb.EdgeModel(age=message.age, size=message.size))
            vector = message.weights
    return pb.Frame(peer=peer).SerializeToString(), vector


def kinds_between(algorithm: str, servers: int, sender: int, receiver: int) -> frozenset[str]:
    """The kinds of messages that one server may send another."""
    if algorithm == "hierfavg":
        cloud = servers - 1
        return frozenset({"model"} if sender == cloud else {"edge"} if receiver == cloud else ())
    return frozenset({"model"} if algorithm == "sync-spyker" else {"age", "token", "model"})


def check_message(peer: pb.Peer, kinds: frozenset[str], servers: int) -> None:
    """Refuse what no server sends. It would end this process, be sent again to the next one, and end that, too."""
    kind = peer.WhichOneof("kind")
    if kind not in kinds:
        raise Refusal("malformed", f"a message of the kind {kind}; it may be {', '.join(sorted(kinds)) or 'nothing'}")
    body = getattr(peer, kind)
    counts = {"sequence": peer.sequence}
    ages = tuple(body.ages) if kind == "token" else (body.age,)
    if kind in ("token", "model"):
        counts["bid"] = body.bid
    elif kind == "edge":
        counts["size"] = body.size
    if kind == "token" and len(ages) != servers:
        raise Refusal("malformed", f"a token with {len(ages)} ages for {servers} servers")
    for age in ages:
        if not 0 <= age < AGE_LIMIT:  # NaN is not, either
            raise Refusal("malformed", f"the age {age:g} in a message of the kind {kind}")
    for name, count in counts.items():
        if not 0 < count < COUNT_LIMIT:
            raise Refusal("malformed", f"the {name} {count} in a message of the kind {kind}")


def carries_model(peer: pb.Peer) -> bool:
    """Whether a vector belongs to this message."""
    return peer.WhichOneof("kind") in ("model", "edge")


def from_wire(peer: pb.Peer, vector: Vector | None) -> PeerMessage:
    """The message back again."""
    kind = peer.WhichOneof("kind")
    if kind == "age":
        return Age(peer.age.age)
    if kind == "token":
        return Token(peer.token.epoch, peer.token.bid, tuple(peer.token.ages))
    if kind == "model" and vector is not None:
        return PeerModel(vector, peer.model.age, peer.model.bid)
    if kind == "edge" and vector is not None:
        return EdgeModel(vector, peer.edge.age, peer.edge.size)
    raise Refusal("malformed", "a peer's message without a kind")


@dataclass(slots=True)
class Posted:
    """A message in an outbox."""

    sequence: int
    body: bytes
    vector: Vector | None
    kind: str


class RolledBack(Refusal):
    """One of two servers has an older state than the other knows of. It does not heal: later numbers only hide it."""

    def __init__(self, detail: str) -> None:
        super().__init__("lineage", detail)


class Outbox:
    """What one other server has not acknowledged yet."""

    def __init__(self) -> None:
        self.entries: deque[Posted] = deque()
        self.last = 0  # the number given last
        self.committed = 0  # up to here a checkpoint on disk holds it
        self.acked = 0  # up to here a checkpoint of the receiver holds the effect
        self.sent = 0  # up to here it was sent over the present connection
        self.news = asyncio.Event()

    def post(self, message: PeerMessage) -> None:
        """Number a message and keep it. An announcement that was never sent gives way to a newer one."""
        if isinstance(message, Age) and self.entries:
            waiting = self.entries[-1]
            if waiting.kind == "Age" and waiting.sequence > self.sent:
                self.entries.pop()
        self.last += 1
        self.entries.append(Posted(self.last, *to_wire(self.last, message), type(message).__name__))

    def commit(self, sequence: int) -> None:
        """Everything up to here may be sent."""
        if sequence > self.committed:
            self.committed = sequence
            self.news.set()

    def acknowledge(self, sequence: int) -> None:
        """The receiver will never ask for these again."""
        self.acked = max(self.acked, sequence)
        while self.entries and self.entries[0].sequence <= sequence:
            self.entries.popleft()

    def check(self, peer: int, received: int) -> None:
        """Compare what the receiver says it has with what is known here."""
        if received < self.acked:
            raise RolledBack(
                f"server {peer} has message {received} from here and had saved message {self.acked}: its state is an "
                f"older one. {REMEDY}"
            )
        if received > self.last:
            raise RolledBack(
                f"server {peer} has message {received} from here, where {self.last} is the last that is known: the "
                f"state of this server is an older one. {REMEDY}"
            )

    def next(self) -> Posted | None:
        """The first message that may be sent and has not been."""
        for posted in self.entries:
            if posted.sequence > self.sent:
                return posted if posted.sequence <= self.committed else None
        return None


class Link:
    """The connection by which this server tells another one what is in the outbox. Comes back whenever it breaks."""

    def __init__(
        self,
        peer: int,
        address: str,
        outbox: Outbox,
        hello: pb.PeerHello,
        *,
        lineages: dict[int, str],
        credentials: grpc.ChannelCredentials | None,
        keepalive: float,
        stall: float,
        log: Log,
        on_sent: Callable[[str, int], None],
    ) -> None:
        self.peer, self.address, self.outbox, self.hello = peer, address, outbox, hello
        self.lineages = lineages
        self.credentials, self.keepalive, self.stall, self.log, self.on_sent = (
            credentials,
            keepalive,
            stall,
            log,
            on_sent,
        )
        self._complaint = ""

    async def run(self) -> None:
        """Keep the other server informed, for ever, unless one of the two was rolled back."""
        async with channel(self.address, self.keepalive, self.credentials) as connection:
            while True:
                try:
                    await self._speak(open_stream(connection, LINK))
                except RolledBack as refusal:
                    self.log.error("link-refused", peer=self.peer, address=self.address, error=str(refusal))
                    return
                except LINK_DOWN as error:
                    said = error.details() if isinstance(error, grpc.aio.AioRpcError) else repr(error)
                    if said != self._complaint:  # once, not twice a second
                        self._complaint = str(said)
                        self.log.warning("link-down", peer=self.peer, address=self.address, error=said)
                await asyncio.sleep(RETRY_SECONDS)

    async def _speak(self, stream: Any) -> None:
        reader = None
        try:
            async with asyncio.timeout(HANDSHAKE_SECONDS):
                await stream.write(pb.Frame(peer_hello=self.hello).SerializeToString())
                welcome = await read_body(stream, "peer_welcome")
            if welcome.protocol != PROTOCOL:
                raise Refusal("protocol", f"server {self.peer} speaks version {welcome.protocol}, not {PROTOCOL}")
            if self.lineages.setdefault(self.peer, welcome.lineage) != welcome.lineage:
                raise Refusal("lineage", f"server {self.peer} has lost its state and began anew. {REMEDY}")
            self.outbox.check(self.peer, welcome.received)
            self.outbox.sent = welcome.received
            self._complaint = ""
            self.log.info("link-up", peer=self.peer, address=self.address)
            reader = asyncio.create_task(self._read_acks(stream))
            while not reader.done():
                self.outbox.news.clear()
                while (posted := self.outbox.next()) is not None:
                    self.outbox.sent = posted.sequence

                    async def write(frame: bytes) -> None:
                        async with asyncio.timeout(self.stall):
                            await stream.write(frame)

                    self.on_sent(posted.kind, await send(write, posted.body, posted.vector))
                news = asyncio.create_task(self.outbox.news.wait())
                await asyncio.wait((news, reader), return_when=asyncio.FIRST_COMPLETED)
                news.cancel()
            await reader
        finally:
            if reader is not None:
                reader.cancel()
            stream.cancel()

    async def _read_acks(self, stream: Any) -> None:
        while True:
            ack = await read_body(stream, "ack")
            if ack.sequence > self.outbox.sent:
                raise Refusal("malformed", f"an acknowledgement of message {ack.sequence}, which was not sent")
            self.outbox.acknowledge(ack.sequence)


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
