"""A client's state is stored without pickle."""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from spyker.errors import UsageError
from spyker.net.client_state_codec import pack, unpack


def again(state: Any) -> Any:
    text, arrays = pack(state)
    return unpack(json.loads(json.dumps(text, allow_nan=False)), arrays)


@pytest.mark.parametrize(
    "state",
    [
        None,
        True,
        -(2**70),
        0.1,
        "é\n",
        b"",
        b"\x00\xff",
        [1, [2.5, None]],
        (1, ("a", [True])),
        {"a": 1, 2: {"tuple": [1], "array": "0"}, None: (), (1, "x"): []},
        float("inf"),
    ],
)
def test_plain_values_come_back_with_their_types(state: Any) -> None:
    found = again(state)
    assert found == state
    assert type(found) is type(state)


def test_numbers_that_json_does_not_have_come_back() -> None:
    assert np.isnan(again(float("nan")))
    scalar = again(np.float32(0.1))
    assert scalar == np.float32(0.1)
    assert scalar.dtype == np.float32


@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", "i8", "u1", "?", ">f4"])
def test_arrays_come_back_writable(dtype: str) -> None:
    for array in (np.arange(6).reshape(2, 3).astype(dtype).T, np.array(1).astype(dtype), np.zeros((0, 2), dtype)):
        found = again({"x": array})["x"]
        assert found.dtype == array.dtype.newbyteorder("=")
        assert found.shape == array.shape
        assert np.array_equal(found, array)
        assert found.flags.writeable


def test_the_state_of_every_kind_of_optimiser_tensor_comes_back() -> None:
    model = nn.Linear(3, 2)
    optimiser = torch.optim.Adam(model.parameters(), betas=(0.8, 0.9))
    model(torch.ones(1, 3)).sum().backward()
    optimiser.step()
    before, after = optimiser.state_dict(), again(optimiser.state_dict())
    assert str(before) == str(after)
    fresh = torch.optim.Adam(model.parameters())
    fresh.load_state_dict(after)
    assert str(fresh.state_dict()) == str(before)
    half = torch.tensor([1.5, -2.0], dtype=torch.bfloat16)
    assert torch.equal(again([half])[0], half)
    assert list(again(OrderedDict(model.state_dict()))) == ["weight", "bias"]


@dataclass
class Own:
    x: int = 1


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (Own(), "state is a Own"),
        ({"a": [1, {2}]}, r"state\['a'\]\[1\] is a set"),
        (np.array(["text"], object), "an array of object"),
        (np.ones(2, complex), "an array of complex128"),
        (len, "builtin_function_or_method"),
    ],
)
def test_other_objects_are_refused_with_their_place(state: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        pack(state)


def test_a_cycle_is_refused() -> None:
    state: list[Any] = []
    state.append(state)
    with pytest.raises(UsageError, match="nested"):
        pack(state)
