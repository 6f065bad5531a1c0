"""Messages that declare themselves: there and back, their sizes, and what a border refuses."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta

from spyker.protocol.codec import (
    ECHOED,
    HEADER_BYTES,
    LONGEST_NAME,
    MOST_ENTRIES,
    MOST_METRICS,
    MOST_SERVERS,
    PER_SERVER,
    MalformedMessage,
    MaxLength,
    Sizes,
    as_json,
    decode,
    encode,
    expected,
    lengths,
    schema_of,
    size_in_bytes,
)
from spyker.protocol.messages import (
    Age,
    ClientMessage,
    EdgeIdle,
    EdgeModel,
    Join,
    Message,
    Model,
    PeerMessage,
    PeerModel,
    Token,
    Update,
)
from spyker.vectors import Vector

SIZES = Sizes(parameters=4, servers=3)


@dataclass(frozen=True, slots=True, eq=False)
class Everything(ClientMessage):
    """One field of every kind."""

    weights: Vector
    mask: Annotated[npt.NDArray[np.uint8], MaxLength(1000)]
    control: Annotated[npt.NDArray[np.float64], MaxLength(None)]
    count: Annotated[int, Meta(ge=1, lt=100)]
    share: Annotated[float, Meta(ge=-1.0, lt=1.0)]
    compressed: bool
    codec: str
    shape: tuple[Annotated[int, Meta(ge=0, lt=10)], ...]
    ages: Annotated[tuple[float, ...], PER_SERVER]
    age: Annotated[float, ECHOED]
    note: str | None = None
    seen: int | None = None
    metrics: Mapping[str, float] | None = None


FINITE = st.floats(allow_nan=False, allow_infinity=False)
TEXT = st.text(max_size=LONGEST_NAME)
MESSAGES = st.builds(
    Everything,
    weights=st.lists(st.floats(width=32), min_size=4, max_size=4).map(lambda v: np.array(v, np.float32)),
    mask=st.binary(max_size=1000).map(lambda data: np.frombuffer(data, np.uint8)),
    control=st.lists(FINITE, max_size=4).map(lambda v: np.array(v, np.float64)),
    count=st.integers(1, 99),
    share=st.floats(-1.0, 1.0, exclude_max=True),
    compressed=st.booleans(),
    codec=TEXT,
    shape=st.lists(st.integers(0, 9), max_size=MOST_ENTRIES).map(tuple),
    ages=st.tuples(FINITE, FINITE, FINITE),
    age=FINITE,
    note=st.none() | TEXT,
    seen=st.none() | st.integers(),
    metrics=st.none() | st.dictionaries(st.text(max_size=64), FINITE, max_size=5),
)


def over_the_wire(message: Message, sizes: Sizes = SIZES) -> Message:
    """JSON for the numbers and bytes for the arrays, of the types and lengths that the receiver expects."""
    numbers, arrays = encode(message)
    kind = type(message)
    claimed = json.loads(json.dumps(lengths(arrays, kind)))
    received = []
    for (dtype, length), array in zip(expected(kind, claimed, sizes), arrays, strict=True):
        received.append(np.frombuffer(array.tobytes(), dtype))
        assert received[-1].size == length
    return decode(kind, as_json(numbers), received, sizes)


def same(one: Message, two: Message) -> None:
    assert type(one) is type(two)
    for field in fields(one):  # type: ignore[arg-type]
        a, b = getattr(one, field.name), getattr(two, field.name)
        if isinstance(a, np.ndarray):
            assert (a.dtype, a.tobytes()) == (b.dtype, b.tobytes())
        else:
            assert (type(a), a) == (type(b), b)


@given(MESSAGES)
def test_a_message_comes_back_as_it_was(message: Everything) -> None:
    same(over_the_wire(message), message)
    assert size_in_bytes(message) == HEADER_BYTES + 16 + message.mask.size + 8 * message.control.size


WEIGHTS = np.arange(4, dtype=np.float32)


@pytest.mark.parametrize(
    "message",
    [
        Model(WEIGHTS, 1.5, 7, 0.05),
        Update(WEIGHTS, 1.5, 7),
        Update(WEIGHTS, 1.5, 7, 12, {"loss": 0.25}),
        Join(3),
        Age(0.0),
        Age(1e14),
        Token(2, 3, (0.0, 1.5, 2.0)),
        PeerModel(WEIGHTS, 0.0, 1),
        EdgeModel(WEIGHTS, 3.0, 1),
        EdgeIdle(),
    ],
    ids=lambda message: message.kind,
)
def test_what_nodes_say_to_each_other_is_accepted(message: Message) -> None:
    same(over_the_wire(message), message)


NAN, INFINITE = float("nan"), float("inf")


@pytest.mark.parametrize(
    "message",
    [
        *(Age(age) for age in (NAN, INFINITE, -1.0, 1e15)),
        Token(0, 1, (0.0,) * (MOST_SERVERS + 1)),
        Token(0, 1, (0.0, 0.0, NAN)),
        Token(0, 1, (0.0, 0.0, -1.0)),
        Token(0, 0, (0.0,) * 3),
        Token(0, 1 << 63, (0.0,) * 3),
        PeerModel(WEIGHTS, INFINITE, 1),
        PeerModel(WEIGHTS, 1.0, 0),
        PeerModel(WEIGHTS, 1.0, (1 << 64) - 1),
        EdgeModel(WEIGHTS, -1.0, 1),
        EdgeModel(WEIGHTS, 1.0, 0),
        EdgeModel(WEIGHTS, 1.0, 1 << 53),
        Join(0),
        Update(WEIGHTS, 0.0, 0, examples=0),
        Update(WEIGHTS, 0.0, 0, metrics={"loss": NAN}),
        Update(WEIGHTS, 0.0, 0, metrics={"x" * 257: 1.0}),
        Update(WEIGHTS, 0.0, 0, metrics={str(n): 1.0 for n in range(MOST_METRICS + 1)}),
        Update(WEIGHTS, 0.0, 0, metrics={f"{n:0250}": 1.0 for n in range(20)}),  # more than LONGEST_NAMES together
        Update(WEIGHTS, 0.0, 0, metrics={f"{n}" + 40 * "\U0001f600": 1.0 for n in range(10)}),  # escaped in records
    ],
    ids=str,
)
def test_what_no_node_says_is_refused(message: Message) -> None:
    with pytest.raises(MalformedMessage):
        over_the_wire(message)


GOOD = {
    "count": 1, "share": 0.5, "compressed": True, "codec": "raw", "shape": [1, 2], "ages": [0.0, 1.0, 2.0], "age": 1.0,
}  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        *({"count": count} for count in ("1", 1.5, True, None, 0, 100, 10**400)),
        *({"share": share} for share in ([0.5], 1.0, -1.5, 10**400)),
        {"compressed": 1},
        *({"codec": codec} for codec in (1, "x" * (LONGEST_NAME + 1))),
        *({"shape": shape} for shape in (3, [1, 10], [0] * (MOST_ENTRIES + 1))),
        {"ages": [0.0] * (MOST_SERVERS + 1)},
        *({"metrics": metrics} for metrics in ([1], {"a": "b"})),
        {"note": 5},
        {"weights": [1.0]},
        {"surprise": 1},
    ],
    ids=lambda value: f"{value!s:.40}",
)
def test_a_field_that_makes_no_sense_is_refused_by_name(change: dict[str, object]) -> None:
    arrays = [WEIGHTS, np.zeros(0, np.uint8), np.zeros(0)]
    decode(Everything, as_json(GOOD), arrays, SIZES)
    (name,) = change
    with pytest.raises(MalformedMessage, match=rf"{name}|out of range"):
        decode(Everything, json.dumps(GOOD | change).encode(), arrays, SIZES)


@pytest.mark.parametrize("share", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_what_is_no_finite_number_is_refused(share: str) -> None:
    numbers = as_json(GOOD).replace(b"0.5", share.encode())
    with pytest.raises(MalformedMessage):
        decode(Everything, numbers, [WEIGHTS, np.zeros(0, np.uint8), np.zeros(0)], SIZES)


@pytest.mark.parametrize("missing", GOOD)
def test_what_is_not_optional_must_be_there(missing: str) -> None:
    numbers = {name: value for name, value in GOOD.items() if name != missing}
    with pytest.raises(MalformedMessage, match=f"`{missing}`|{missing} is missing"):
        decode(Everything, as_json(numbers), [WEIGHTS, np.zeros(0, np.uint8), np.zeros(0)], SIZES)


@pytest.mark.parametrize("content", [None, 1, "text", [1]])
def test_the_content_is_a_table(content: object) -> None:
    with pytest.raises(MalformedMessage, match="Expected `object`"):
        decode(Age, json.dumps(content).encode(), [], SIZES)


@pytest.mark.parametrize("claimed", [[], [1], [1001, 0], [-1, 0], [0, 5], [1, 1, 1]])
def test_lengths_that_may_not_be_are_refused_before_anything_is_received(claimed: list[int]) -> None:
    with pytest.raises(MalformedMessage):
        expected(Everything, claimed, SIZES)


def test_lengths_and_types_follow_from_the_declaration() -> None:
    assert expected(Everything, [1000, 4], SIZES) == [
        (np.dtype(np.float32), 4), (np.dtype(np.uint8), 1000), (np.dtype(np.float64), 4),
    ]  # fmt: skip
    assert expected(PeerModel, [], SIZES) == [(np.dtype(np.float32), 4)]
    assert schema_of(PeerModel).fixed
    assert not schema_of(Everything).fixed


def test_what_the_server_knows_need_not_be_sent_back() -> None:
    numbers, _ = encode(Update(WEIGHTS, 1.5, 7, 12), echoed=False)
    assert numbers == {"examples": 12}
    assert encode(Update(WEIGHTS, 1.5, 7))[0] == {"age": 1.5, "version": 7}


def test_a_message_has_a_name_of_its_own() -> None:
    assert (PeerModel.kind, Age.kind, EdgeIdle.kind, Everything.kind) == (
        "peer-model",
        "age",
        "edge-idle",
        "everything",
    )


def test_a_field_that_no_message_can_hold_is_refused_when_the_class_is_read() -> None:
    @dataclass(frozen=True, slots=True)
    class Wrong(PeerMessage):
        what: complex

    with pytest.raises(TypeError, match=r"Wrong\.what: .*complex.* is not allowed"):
        schema_of(Wrong)
