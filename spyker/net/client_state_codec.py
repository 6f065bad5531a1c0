"""Conversion of a client's state to JSON and arrays, and back.

States on disk are never pickled, because reading a pickle can execute code. Supported are dictionaries, lists, tuples,
strings, numbers, booleans, ``None``, bytes, NumPy arrays and PyTorch tensors, nested as you like.
"""

from __future__ import annotations

import math
import sys
from collections import OrderedDict
from typing import Any

import numpy as np

from spyker.errors import UsageError
from spyker.protocol.codec import Array
from spyker.records.tensors import TYPES

DEEPEST = 64  # nested containers; a cycle is deeper
REMEDY = "Use dictionaries, lists, strings, numbers, bytes, NumPy arrays and PyTorch tensors"


def pack(state: object) -> tuple[Any, dict[str, Array]]:
    """Return a state as a JSON value and the arrays to which it refers by name.

    Raises:
        UsageError: the state holds an object of another type; says where.

    """
    arrays: dict[str, Array] = {}

    def keep(array: Array, where: str) -> str:
        if array.dtype.str[1:] not in TYPES:
            raise refused(where, f"an array of {array.dtype}")
        name = str(len(arrays))
        arrays[name] = array.astype(array.dtype.newbyteorder("="), copy=False)
        return name

    def walk(value: Any, where: str, depth: int) -> Any:
        if depth > DEEPEST:
            raise refused(where, f"more than {DEEPEST} nested containers")
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {"float": repr(value)}
        if type(value) in (list, tuple):
            items = [walk(item, f"{where}[{i}]", depth + 1) for i, item in enumerate(value)]
            return items if type(value) is list else {"tuple": items}
        if type(value) in (dict, OrderedDict):
            pairs = value.items()
            return {"dict": [[walk(k, where, depth + 1), walk(v, f"{where}[{k!r}]", depth + 1)] for k, v in pairs]}
        if type(value) is bytes:
            return {"bytes": keep(np.frombuffer(value, np.uint8), where)}
        if isinstance(value, np.generic):
            return {"scalar": keep(np.asarray(value), where)}
        if type(value) is np.ndarray:
            return {"array": keep(value, where)}
        torch = sys.modules.get("torch")  # it is loaded if there is a tensor
        if torch is not None and isinstance(value, torch.Tensor):
            plain = value.detach().cpu()
            if plain.dtype == torch.bfloat16:  # NumPy does not have it
                return {"bfloat16": keep(plain.view(torch.int16).numpy(), where)}
            return {"tensor": keep(plain.numpy(), where)}
        raise refused(where, f"a {type(value).__qualname__}")

    return walk(state, "state", 0), arrays


def refused(where: str, found: str) -> UsageError:
    """Return the error for a state that cannot be stored."""
    return UsageError("task", f"the state of a client cannot be stored: {where} is {found}", REMEDY)


def unpack(value: Any, arrays: dict[str, Array]) -> Any:
    """Return the state of a JSON value and arrays: the inverse of :func:`pack`. Tensors are on the CPU.

    Raises:
        ValueError, KeyError, TypeError: the value was not made by :func:`pack`.

    """
    if isinstance(value, list):
        return [unpack(item, arrays) for item in value]
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "float":
        return float(content)
    if kind == "tuple":
        return tuple(unpack(item, arrays) for item in content)
    if kind == "dict":
        return {unpack(key, arrays): unpack(item, arrays) for key, item in content}
    array = arrays[content].copy()  # writable
    if kind == "bytes":
        return array.tobytes()
    if kind == "scalar":
        return array[()]
    if kind == "array":
        return array
    import torch

    if kind == "bfloat16":
        return torch.from_numpy(array).view(torch.bfloat16)
    if kind == "tensor":
        return torch.from_numpy(array)
    raise ValueError(f"unknown kind {kind!r}")
