"""Declared messages over frames: what is sent arrives, and what no declaration allows is refused before it is kept."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import pytest

from spyker.net import spyker_pb2 as pb
from spyker.net.frames import CHUNK, send, split
from spyker.net.wire import MessageValidator, fill
from spyker.node.rejection import Rejection
from spyker.protocol.codec import MOST_SERVERS, MaxLength, Sizes
from spyker.protocol.messages import Age, EdgeModel, Message, Model, PeerMessage, PeerModel, Token, Update
from spyker.vectors import Vector

SIZES = Sizes(10, 3)


@dataclass(frozen=True, slots=True, eq=False)
class Sketch(PeerMessage):
    """A compressed difference: where, what, and a vector of the model's length beside it."""

    where: Annotated[npt.NDArray[np.uint32], MaxLength(None)]
    what: Annotated[npt.NDArray[np.float16], MaxLength(None)]
    momentum: Vector
    bid: int


KINDS: tuple[type[Message], ...] = (Age, Token, PeerModel, EdgeModel, Model, Update, Sketch)


def frames_of(message: Message, *, echoed: bool = True) -> list[bytes]:
    """What goes over the wire."""
    frames: list[bytes] = []

    async def write(frame: bytes) -> None:
        frames.append(frame)

    frame = pb.Frame(peer=pb.Peer(sequence=1))
    arrays = fill(frame.peer.content, message, echoed=echoed)
    asyncio.run(send(write, frame.SerializeToString(), arrays))
    return frames


def arrive(frames: Sequence[bytes], sizes: Sizes = SIZES, **echoed: Any) -> Message:
    rest = iter(frames[1:])
    chunk, frame = split(frames[0])
    assert frame is not None
    incoming = MessageValidator(KINDS, sizes).arrive(frame.peer.content, chunk)
    if incoming.whole:
        return incoming.now(**echoed)

    async def read() -> object:
        return next(rest, None)

    message, _ = asyncio.run(incoming.later(read, lambda: np.empty(sizes.parameters, np.float32), **echoed))
    return message


def plain(message: Message) -> list[Any]:
    values = [getattr(message, name) for name in message.__dataclass_fields__]  # type: ignore[attr-defined]
    return [v.tolist() if isinstance(v, np.ndarray) else v for v in values]


VECTOR = np.arange(10, dtype=np.float32)
SKETCH = Sketch(np.array([3, 7], np.uint32), np.array([0.5, -1], np.float16), VECTOR, 4)


@pytest.mark.parametrize(
    "message",
    [
        Age(0.0), Age(1e14), Token(0, 1, (0.0, 1.5, 2.0)), PeerModel(VECTOR, 0.1, 1), EdgeModel(VECTOR, 3.0, 1),
        Model(VECTOR, 1.0, 2, 0.05), Update(VECTOR, 1.0, 2, 3, {"loss": 0.25}), SKETCH,
        Sketch(np.empty(0, np.uint32), np.empty(0, np.float16), VECTOR, 1),
    ],
    ids=lambda message: message.kind,
)  # fmt: skip
def test_what_is_sent_arrives(message: Message) -> None:
    found = arrive(frames_of(message))
    assert type(found) is type(message)
    assert plain(found) == plain(message)


def test_a_model_of_many_chunks_arrives() -> None:
    sizes = Sizes(CHUNK // 2 + 3, 2)
    vector = np.random.default_rng(0).random(sizes.parameters, np.float32)
    frames = frames_of(PeerModel(vector, 1.0, 1))
    assert len(frames) == 3
    found = arrive(frames, sizes)
    assert isinstance(found, PeerModel)
    assert np.array_equal(found.weights, vector)
    assert not found.weights.flags.writeable, "a checkpoint may hold it as it is"


def test_what_the_server_said_need_not_be_repeated_and_cannot_be_changed() -> None:
    frames = frames_of(Update(VECTOR, 77.0, 99), echoed=False)
    assert b"77" not in frames[0][50:]
    found = arrive(frames_of(Update(VECTOR, 77.0, 99)), age=1.0, version=2)
    assert plain(found)[1:3] == [1.0, 2]


@pytest.mark.parametrize(
    "message",
    [
        *(Age(age) for age in (float("nan"), float("inf"), -1.0, 1e15)),
        Token(0, 1, (0.0,) * (MOST_SERVERS + 1)),
        Token(0, 1, (0.0, 0.0, float("nan"))),
        Token(0, 0, (0.0,) * 3),
        Token(0, 2**63, (0.0,) * 3),
        PeerModel(VECTOR, float("inf"), 1),
        PeerModel(VECTOR, 1.0, 0),
        PeerModel(VECTOR, 1.0, 2**64 - 1),
        PeerModel(VECTOR[:9], 1.0, 1),
        PeerModel(np.full(10, np.nan, np.float32), 1.0, 1),
        EdgeModel(VECTOR, -1.0, 1),
        EdgeModel(VECTOR, 1.0, 0),
        EdgeModel(VECTOR, 1.0, 2**53),
        Update(VECTOR, 1.0, 2, 0),
        Update(VECTOR, 1.0, 2, 1, {"loss": float("inf")}),
        Sketch(np.zeros(11, np.uint32), np.zeros(1, np.float16), VECTOR, 1),
        Sketch(np.zeros(1, np.uint32), np.array([np.inf], np.float16), VECTOR, 1),
        Sketch(np.zeros(1, np.uint32), np.zeros(1, np.float16), np.full(10, np.inf, np.float32), 1),
    ],
    ids=lambda message: str(plain(message)),
)
def test_what_nobody_says_is_refused(message: Message) -> None:
    with pytest.raises(Rejection, match=r"malformed|not-finite|truncated"):
        arrive(frames_of(message))


@pytest.mark.parametrize(
    "content",
    [
        pb.Content(),
        pb.Content(kind="nonsense", fields=b"{}"),
        pb.Content(kind="age", fields=b""),
        pb.Content(kind="age", fields=b"[]"),
        pb.Content(kind="age", fields=b"{}"),
        pb.Content(kind="age", fields=b'{"age": true}'),
        pb.Content(kind="age", fields=b'{"age": "1"}'),
        pb.Content(kind="age", fields=b'{"age": 1, "bid": 2}'),
        pb.Content(kind="age", fields=b"[" * 50_000),
        pb.Content(kind="age", fields=b'{"age": 1}', lengths=[3]),
        pb.Content(kind="age", fields=b'{"age": ' + b"9" * 5000 + b"}"),
        pb.Content(kind="token", fields=json.dumps({"epoch": 0, "bid": 1.5, "ages": [0, 0, 0]}).encode()),
        pb.Content(kind="sketch", fields=b'{"bid": 1}', lengths=[2**63, 1]),
    ],
    ids=lambda content: f"{content.kind} {content.fields[:40]!r}",
)
def test_what_no_declaration_allows_is_refused(content: pb.Content) -> None:
    with pytest.raises(Rejection, match="malformed"):
        arrive([pb.Frame(peer=pb.Peer(content=content)).SerializeToString()])


def test_weights_of_a_message_that_has_none_are_refused() -> None:
    frame = pb.Frame(chunk=bytes(40))
    fill(frame.peer.content, Age(1.0))
    with pytest.raises(Rejection, match="weights in a message of the kind age"):
        arrive([frame.SerializeToString()])
