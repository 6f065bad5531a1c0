"""Conversion of a server's state to JSON values and arrays, and back.

Packed values are tagged with their type, such as tuple, set, message or random generator. Algorithms therefore need
no code for checkpoints.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from spyker.protocol.codec import Array, Sizes, as_json, decode, encode, plain, schema_of
from spyker.protocol.messages import Message
from spyker.protocol.weights import Weights

TUPLE, SET, TABLE, ARRAY, MESSAGE, RANDOM, FLOAT = "tuple", "set", "table", "array", "message", "random", "float"
PLAIN = frozenset({type(None), bool, int, str})


@dataclass(frozen=True, slots=True, eq=False)
class ServerState:
    """The state of a server, without what :class:`~spyker.protocol.server.Setup` contains."""

    numbers: dict[str, Any]
    """JSON values. Python writes and reads floats in JSON without loss."""
    vectors: dict[str, Array]
    """Arrays that are not modified afterwards."""


@runtime_checkable
class Stateful(Protocol):
    """An attribute of a server that saves and restores itself: anything with these two methods."""

    @abstractmethod
    def state(self) -> Any:
        """Return the state as values that :func:`pack` accepts."""

    @abstractmethod
    def restore(self, state: Any, /) -> None:
        """Restore it in place."""


def pack(value: Any, name: str, vectors: dict[str, Array]) -> Any:
    """Convert a value to JSON values. Arrays go into ``vectors``, under names that begin with ``name``."""
    kind = type(value)
    if kind in PLAIN:
        return value  # the common cases; match is slow
    if kind is float:
        return value if math.isfinite(value) else {FLOAT: repr(value)}
    if kind is list and needs_no_packing(value):
        return value.copy()
    if kind is tuple:
        if needs_no_packing(value):
            return {TUPLE: list(value)}
        return {TUPLE: [pack(entry, f"{name}.{i}", vectors) for i, entry in enumerate(value)]}
    if kind is dict:
        if needs_no_packing(value.keys()) and needs_no_packing(value.values()):
            return {TABLE: [*map(list, value.items())]}
        pairs = ((key, pack(entry, f"{name}.{key}", vectors)) for key, entry in value.items())
        return {TABLE: [[pack(key, name, vectors), entry] for key, entry in pairs]}
    match value:
        case int() | str():
            return value
        case float():
            return float(value) if math.isfinite(value) else {FLOAT: repr(float(value))}
        case list():
            return [pack(entry, f"{name}.{i}", vectors) for i, entry in enumerate(value)]
        case tuple():
            return {TUPLE: [pack(entry, f"{name}.{i}", vectors) for i, entry in enumerate(value)]}
        case set() | frozenset():
            return {SET: [pack(entry, name, vectors) for entry in sorted(value)]}
        case Weights():
            vectors[name] = value.snapshot()
            return {ARRAY: name}
        case np.ndarray():
            vectors[name] = value.copy() if value.flags.writeable else value
            return {ARRAY: name}
        case np.generic():
            return pack(value.item(), name, vectors)
        case np.random.Generator():
            return {RANDOM: value.bit_generator.state}
        case Message():
            numbers, arrays = encode(value)
            numbers = {key: plain(each) if isinstance(each, Mapping) else each for key, each in numbers.items()}
            forms = schema_of(type(value)).arrays
            for form, array in zip(forms, arrays, strict=True):
                numbers[form.name] = pack(array, f"{name}.{form.name}", vectors)
            return {MESSAGE: value.kind, "fields": numbers}
        case Mapping():
            return pack(dict(value), name, vectors)
        case Stateful():
            return pack(value.state(), name, vectors)
    raise TypeError(
        f"{name}: {type(value).__name__} is not allowed in a checkpoint. Use numbers, strings, lists, tuples, sets, "
        "dictionaries, arrays, messages or a numpy Generator, or start the attribute's name with an underscore to "
        "leave it out"
    )


def needs_no_packing(values: Collection[Any]) -> bool:
    """Return whether all values are JSON values as they are. Tables with numbers of all clients are."""
    kinds = {*map(type, values)}
    return kinds <= PLAIN or (
        kinds - PLAIN == {float} and all(math.isfinite(value) for value in values if type(value) is float)
    )


class Unpacker:
    """Converts packed values back. It creates messages of the given ``kinds`` only."""

    def __init__(self, vectors: Mapping[str, Array], kinds: Mapping[str, type[Message]], sizes: Sizes) -> None:
        self.vectors, self.kinds, self.sizes = vectors, kinds, sizes

    def unpack(self, packed: Any) -> Any:
        """Convert one packed value back."""
        if isinstance(packed, list):
            return [self.unpack(entry) for entry in packed]
        if not isinstance(packed, dict):
            return packed
        match packed:
            case {"tuple": entries}:
                return tuple(self.unpack(entry) for entry in entries)
            case {"set": entries}:
                return {self.unpack(entry) for entry in entries}
            case {"table": pairs}:
                return {self.unpack(key): self.unpack(entry) for key, entry in pairs}
            case {"array": name}:
                return self.vectors[name]
            case {"float": text}:
                return float(text)
            case {"random": state}:
                random = np.random.default_rng(0)
                random.bit_generator.state = state
                return random
            case {"message": name, "fields": fields}:
                kind = self.kinds[name]
                arrays = [self.unpack(fields[form.name]) for form in schema_of(kind).arrays]
                for form, array in zip(schema_of(kind).arrays, arrays, strict=True):
                    if array.dtype != form.dtype:
                        raise ValueError(f"{name}.{form.name}: {array.dtype} is not allowed: the type is {form.dtype}")
                numbers = {name: fields[name] for name in schema_of(kind).names if name in fields}
                return decode(kind, as_json(numbers), arrays, self.sizes)
        raise ValueError(f"unknown value in the checkpoint: {packed!r:.100}")
