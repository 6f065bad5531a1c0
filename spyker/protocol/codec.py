"""Message codec: encoding, size and validation of a message, derived from its dataclass declaration.

A field is a number, a boolean, a string, a mapping from names to numbers, a tuple of numbers, or an array. Its type
says which; marks in ``Annotated`` constrain the values:

- ``weights: Vector`` is a float32 array as long as the model; ``Annotated[npt.NDArray[np.uint8], MaxLength(1000)]`` an
  array of bytes of any length up to 1,000, and ``MaxLength(None)`` one up to the model's length. A message may have
  several.
- ``CodedAs("int8")`` marks an array of bytes that is a coded vector (:mod:`~spyker.compression.block_codec`).
- ``msgspec.Meta(ge=0, lt=10)`` bounds a number, or each number of a tuple. Numbers are always finite.
- ``PER_SERVER`` marks a tuple with one entry per server that has clients. Their number may change.
- ``ECHOED`` marks a field of a client message that repeats a value of the task; the server's driver knows it.
- ``| None`` marks an optional field.

Everything except arrays is JSON, which msgspec parses and validates.
"""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from spyker.compression import block_codec
from spyker.vectors import Vector

if TYPE_CHECKING:
    from spyker.protocol.messages import Message

HEADER_BYTES = 64
MOST_ENTRIES, LONGEST_NAME = 256, 256  # of a tuple; of a text, or of a name in a table
MOST_METRICS, LONGEST_NAMES = 128, 4096  # entries of a table; bytes of all of its names as they are recorded
MOST_SERVERS = 1 << 16
Array = npt.NDArray[Any]
M = TypeVar("M", bound="Message")
NOTHING: Mapping[str, Any] = MappingProxyType({})
Name = Annotated[str, msgspec.Meta(max_length=LONGEST_NAME)]
PLAIN = (int, float, bool)
SINGLE = np.dtype(np.float32)


@dataclass(frozen=True, slots=True)
class MaxLength:
    """Mark of an array with at most ``count`` entries; ``None``: at most as many as the model has."""

    count: int | None


@dataclass(frozen=True, slots=True)
class CodedAs:
    """Mark of an array of bytes: a coded vector of the model's length or, with ``most``, up to so many in a row."""

    code: str
    most: int | None = None

    def bytes(self, sizes: Sizes) -> int:
        """Return the bytes of one coded vector."""
        return sum(block_codec.size_of(self.code, sizes.parameters, sizes.buffers))

    def parts(self, coded: Array, sizes: Sizes) -> list[Array]:
        """Return the coded vectors in ``coded``."""
        unit = self.bytes(sizes)
        return [coded[start : start + unit] for start in range(0, coded.size, unit)]

    def decoded(self, coded: Array, sizes: Sizes, onto: Vector | None = None) -> Vector:
        """Return one coded vector, added to ``onto``."""
        return block_codec.decode(coded, self.code, sizes.parameters, sizes.buffers, onto)


class FieldMark:
    """A mark of a field."""


PER_SERVER, ECHOED = FieldMark(), FieldMark()


class MalformedMessage(ValueError):  # noqa: N818 - the sender's fault, not ours
    """The content does not match the declared message kind."""


class Sizes(NamedTuple):
    """Numbers that determine the lengths of arrays and tuples."""

    parameters: int
    servers: int
    buffers: int = 0
    """Number of buffers among the parameters, at the end."""


class ArraySpec(NamedTuple):
    """The declaration of an array field."""

    name: str
    dtype: np.dtype[Any]
    mark: MaxLength | CodedAs | None
    """None: exactly as long as the model."""

    @property
    def variable(self) -> bool:
        """Whether messages say how long the array is."""
        return isinstance(self.mark, MaxLength) or (self.mark is not None and self.mark.most is not None)

    def length(self, claimed: int | None, sizes: Sizes) -> int:
        """Return the array's length; raise ``MalformedMessage`` if the claimed length is not allowed."""
        if self.mark is None:
            return sizes.parameters
        unit = 1
        if isinstance(self.mark, MaxLength):
            most = sizes.parameters if self.mark.count is None else self.mark.count
        else:
            unit = self.mark.bytes(sizes)
            if self.mark.most is None:
                return unit
            most = unit * self.mark.most
        if claimed is None or not 0 <= claimed <= most or claimed % unit:
            allowed = f"the maximum is {most:,}" + (f", in multiples of {unit:,}" if unit > 1 else "")
            raise MalformedMessage(f"{self.name}: {claimed} entries are not allowed: {allowed}")
        return claimed

    def check(self, array: Array, sizes: Sizes) -> None:
        """Raise ``MalformedMessage`` if coded vectors are not of finite numbers."""
        if isinstance(self.mark, CodedAs):
            for part in self.mark.parts(array, sizes):
                try:
                    block_codec.check(part, self.mark.code, sizes.parameters, sizes.buffers)
                except ValueError as error:
                    raise MalformedMessage(f"{self.name}: {error}") from None


class MessageSchema(NamedTuple):
    """The parsed declaration of a message class."""

    names: tuple[str, ...]
    """Names of the fields that are not arrays."""
    read: msgspec.json.Decoder[Any]
    """Decoder of these fields from JSON."""
    arrays: tuple[ArraySpec, ...]
    echoed: frozenset[str]
    per_server: frozenset[str]
    fixed: bool
    """Whether all messages of this class have the same size."""


_READ: dict[type[Any], MessageSchema] = {}


def schema_of(kind: type[Message]) -> MessageSchema:
    """Return the schema of a message class, parsed once and cached."""
    said = _READ.get(kind)
    if said is None:
        said = _READ[kind] = read_schema(kind)
    return said


def read_schema(kind: type[Message]) -> MessageSchema:
    """Parse the declaration of a message class."""
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    arrays, echoed, per_server = [], set(), set()
    for name, hint in typing.get_type_hints(kind, include_extras=True).items():
        if typing.get_origin(hint) is typing.ClassVar:
            continue
        optional = typing.get_origin(hint) in (typing.Union, types.UnionType)
        if optional:
            (hint,) = (part for part in typing.get_args(hint) if part is not types.NoneType)
        inner, marks = unwrap(hint)
        if typing.get_origin(inner) is np.ndarray:
            (dtype,) = typing.get_args(typing.get_args(inner)[1])
            mark = next((m for m in marks if isinstance(m, MaxLength | CodedAs)), None)
            arrays.append(ArraySpec(name, np.dtype(dtype), mark))
            continue
        echoed |= {name} if ECHOED in marks else set()
        per_server |= {name} if PER_SERVER in marks else set()
        bounded = bound(kind, name, inner, marks)
        fields.append((name, bounded | None, None) if optional or ECHOED in marks else (name, bounded))
    struct = msgspec.defstruct(kind.__name__, fields, forbid_unknown_fields=True, kw_only=True)
    fixed = not any(array.variable for array in arrays)
    names = tuple(field[0] for field in fields)
    read = msgspec.json.Decoder(struct)
    return MessageSchema(names, read, tuple(arrays), frozenset(echoed), frozenset(per_server), fixed)


def unwrap(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """Split a type hint into the type and its ``Annotated`` marks."""
    if typing.get_origin(hint) is Annotated:
        inner, *marks = typing.get_args(hint)
        return inner, tuple(marks)
    return hint, ()


def bound(kind: type[Message], name: str, hint: Any, marks: Sequence[Any]) -> Any:
    """Return the type hint with the limits that msgspec checks."""
    if hint in PLAIN:
        bounds = [mark for mark in marks if isinstance(mark, msgspec.Meta)]
        return Annotated[(hint, *bounds)] if bounds else hint
    if hint is str:
        return Name
    if typing.get_origin(hint) is tuple:
        inner, inner_marks = unwrap(typing.get_args(hint)[0])
        entries: Any = tuple.__class_getitem__((bound(kind, name, inner, inner_marks), ...))
        most = MOST_SERVERS if PER_SERVER in marks else MOST_ENTRIES
        return Annotated[entries, msgspec.Meta(max_length=most)]
    if typing.get_origin(hint) in (Mapping, dict):
        return Annotated[dict[Name, float], msgspec.Meta(max_length=MOST_METRICS)]
    raise TypeError(f"{kind.__name__}.{name}: {hint} is not allowed in a message. See {__name__} for the allowed types")


# --- Encoding and decoding ------------------------------------------------------------------------------------------


def encode(message: Message, *, echoed: bool = True) -> tuple[dict[str, Any], list[Array]]:
    """Split a message into JSON values and arrays.

    Args:
        message: the message.
        echoed: whether to include ``ECHOED`` fields, which the receiver of a reply knows.

    """
    said = schema_of(type(message))
    numbers = {}
    for name in said.names:
        value = getattr(message, name)
        if value is not None and (echoed or name not in said.echoed):
            numbers[name] = value
    return numbers, [getattr(message, array.name) for array in said.arrays]


def as_json(numbers: dict[str, Any]) -> bytes:
    """Serialise the JSON values."""
    return msgspec.json.encode(numbers, enc_hook=plain)


def plain(value: Any) -> Any:
    """Convert a NumPy number or a mapping to a plain Python value."""
    return dict(value) if isinstance(value, Mapping) else value.item()


def lengths(arrays: Sequence[Array], kind: type[Message]) -> list[int]:
    """Return the lengths of the arrays of variable length."""
    said = schema_of(kind)
    if said.fixed:
        return []
    return [array.size for form, array in zip(said.arrays, arrays, strict=True) if form.variable]


def expected(kind: type[Message], claimed: Sequence[int], sizes: Sizes) -> list[tuple[np.dtype[Any], int]]:
    """Return the types and lengths of the arrays of an incoming message."""
    forms, rest = schema_of(kind).arrays, list(claimed)
    found = [(form.dtype, form.length(rest.pop(0) if rest and form.variable else None, sizes)) for form in forms]
    if rest:
        raise MalformedMessage(f"{len(rest)} unexpected arrays")
    return found


def decode(
    kind: type[M], numbers: bytes, arrays: Sequence[Array], sizes: Sizes, known: Mapping[str, Any] = NOTHING
) -> M:
    """Decode and validate a message.

    Args:
        kind: the message class.
        numbers: the JSON values.
        arrays: the arrays, of the types and lengths that :func:`expected` returned.
        sizes: numbers that determine the lengths of tuples.
        known: values that override those in ``numbers``.

    Raises:
        MalformedMessage: the values do not match the declaration.

    """
    said = schema_of(kind)
    try:
        read = said.read.decode(numbers)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedMessage(str(error)) from None
    values: dict[str, Any] = msgspec.structs.asdict(read)
    for name, value in values.items():
        if type(value) is dict and names_length(value) > LONGEST_NAMES:
            raise MalformedMessage(f"the names in {name} have more than {LONGEST_NAMES} bytes")
    values.update(known)
    for name in said.echoed:
        if values[name] is None:
            raise MalformedMessage(f"{name} is missing")
    for form, array in zip(said.arrays, arrays, strict=True):
        form.check(array, sizes)
        values[form.name] = array
    return kind(**values)


def names_length(table: Mapping[str, float]) -> int:
    """Return the bytes of a table's names in a run record, where a character can take up to twelve."""
    return sum(len(json.dumps(name)) for name in table)


def size_in_bytes(message: Message) -> int:
    """Return the size of a message on an emulated link."""
    arrays: list[Array] = [getattr(message, form.name) for form in schema_of(type(message)).arrays]
    return HEADER_BYTES + sum(array.nbytes for array in arrays)
