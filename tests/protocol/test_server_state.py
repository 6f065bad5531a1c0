"""States through JSON: what comes back is what was saved, of the same types."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spyker.algorithms.spyker import Spyker
from spyker.protocol.codec import MalformedMessage, Sizes
from spyker.protocol.messages import Age, Join, Token, Update
from spyker.protocol.state import Unpacker, pack
from spyker.protocol.weights import Weights
from spyker.vectors import mix

SIZES = Sizes(2, 2)


def through_a_file(value: object) -> Any:
    """What comes back from a disk."""
    vectors: dict[str, Any] = {}
    packed = json.loads(json.dumps(pack(value, "name", vectors), allow_nan=False))
    copies = {name: array.copy() for name, array in vectors.items()}
    return Unpacker(copies, Spyker.kinds(), SIZES).unpack(packed)


def plain(value: Any) -> Any:
    """A value with everything that must come back, in a form that can be compared."""
    match value:
        case np.ndarray():
            return ("array", value.dtype.str, value.tobytes())
        case list() | tuple():
            return (type(value), [plain(entry) for entry in value])
        case dict():
            return (dict, [(plain(key), plain(entry)) for key, entry in value.items()])
        case float():
            return (float, repr(value))
        case Update():
            return (Update, plain(value.weights), value.age, value.version, value.examples, value.metrics)
        case _:
            return (type(value), value)


KEYS = st.integers() | st.text() | st.booleans() | st.tuples(st.integers(), st.text())
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.frozensets(st.integers()).map(set)
    | st.builds(Age, st.floats(0, 1e14))
    | st.builds(Join, st.integers(1, 1 << 50))
    | st.builds(Token, st.integers(0, 9), st.integers(1, 9), st.tuples(st.floats(0, 9), st.floats(0, 9)))
    | st.builds(
        Update,
        st.tuples(st.floats(width=32), st.floats(width=32)).map(lambda v: np.array(v, np.float32)),
        st.floats(0, 9),
        st.integers(0, 9),
        st.none() | st.integers(1, 9),
        st.none() | st.dictionaries(st.text(max_size=9), st.floats(-9, 9), max_size=2),
    )
    | st.lists(st.floats(), max_size=4).map(np.array)
    | st.binary(max_size=9).map(lambda data: np.frombuffer(data, np.uint8))
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.lists(inner, max_size=3).map(tuple)
    | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=12,
)  # fmt: skip


@given(VALUES)
def test_what_was_saved_comes_back(value: Any) -> None:
    assert plain(through_a_file(value)) == plain(value)


@pytest.mark.parametrize("text", ["tuple", "set", "table", "array", "message", "random", "float", "fields"])
def test_names_that_the_form_uses_itself_are_names_like_others(text: str) -> None:
    value = {text: [text, {text: (1, text)}]}
    assert through_a_file(value) == value


def test_random_numbers_go_on_where_they_were() -> None:
    random = np.random.default_rng(3)
    random.normal(size=5)
    again = through_a_file(random)
    assert again.normal(size=5).tolist() == random.normal(size=5).tolist()


def test_numpy_numbers_become_numbers() -> None:
    assert plain(through_a_file([np.int64(3), np.float64(0.1), np.float64("inf")])) == plain([3, 0.1, float("inf")])


def test_weights_are_saved_as_a_snapshot_and_not_copied() -> None:
    weights = Weights(np.ones(2, np.float32), mix, np.empty_like)
    vectors: dict[str, Any] = {}
    pack({"model": weights}, "name", vectors)
    assert vectors == {"name.model": weights.snapshot()}
    assert vectors["name.model"] is weights.snapshot()


def test_an_array_that_may_be_written_to_is_copied() -> None:
    array, vectors = np.zeros(2), {}
    pack(array, "name", vectors)
    array[0] = 5.0
    assert vectors["name"].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("value", [object(), 1j, b"bytes", lambda: None])
def test_what_a_checkpoint_cannot_hold_is_refused_by_name(value: object) -> None:
    with pytest.raises(TypeError, match=r"name\.0\.x: .*underscore"):
        pack([{"x": value}], "name", {})


@pytest.mark.parametrize("packed", [{}, {"surprise": 1}, {"message": "age"}])
def test_what_nobody_saved_is_refused(packed: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="unknown value in the checkpoint"):
        Unpacker({}, Spyker.kinds(), SIZES).unpack(packed)


def test_only_messages_that_the_server_knows_are_made() -> None:
    with pytest.raises(KeyError):
        Unpacker({}, Spyker.kinds(), SIZES).unpack({"message": "edge-idle", "fields": {}})
    with pytest.raises(MalformedMessage, match="bid"):
        Unpacker({}, Spyker.kinds(), SIZES).unpack(pack(Token(0, 0, (0.0,)), "name", {}) | {})


@pytest.mark.parametrize("value", [np.float32("nan"), np.float64("inf"), np.int32(7), np.bool_(True)])
def test_numbers_of_numpy_are_kept_as_plain_ones(value):
    packed = json.loads(json.dumps(pack(value, "x", {}), allow_nan=False))
    found = Unpacker({}, {}, Sizes(1, 1)).unpack(packed)
    assert repr(found) == repr(value.item())
