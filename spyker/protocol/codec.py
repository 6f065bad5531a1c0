"""What a message's declaration says: how it becomes numbers and arrays, how large it is, and what a border refuses.

A field is a number, a truth value, a text, a table of numbers by name, a tuple of numbers, or an array. Types say
which, and marks in ``Annotated`` say what makes sense:

- ``weights: Vector`` is a float32 array as long as the model; ``Annotated[npt.NDArray[np.uint8], MaxLength(1000)]`` an
  array of bytes of any length up to 1,000, and ``MaxLength(None)`` one up to the model's length. A message may have
  several.
- ``msgspec.Meta(ge=0, lt=10)`` bounds a number, or each number of a tuple. Whatever it says, numbers are finite.
- ``PER_SERVER`` is a tuple with one entry for each server that has clients; how many these are may change.
- ``ECHOED`` is a field of a client's message that repeats what the server said; the server's driver knows it.
- ``| None`` is a field that may be missing.

All but the arrays is JSON, which msgspec reads and checks.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from spyker.protocol.messages import Message

HEADER_BYTES = 64
MOST_ENTRIES, LONGEST_NAME = 256, 256  # of a table or a tuple; of a text, or of a name in a table
MOST_SERVERS = 1 << 16
Array = npt.NDArray[Any]
M = TypeVar("M", bound="Message")
NOTHING: Mapping[str, Any] = MappingProxyType({})
Name = Annotated[str, msgspec.Meta(max_length=LONGEST_NAME)]
PLAIN = (int, float, bool)


@dataclass(frozen=True, slots=True)
class MaxLength:
    """An array of any length up to so many entries; ``None``: up to as many as the model has."""

    count: int | None


class FieldMark:
    """Something that a field is."""


PER_SERVER, ECHOED = FieldMark(), FieldMark()


class MalformedMessage(ValueError):  # noqa: N818 - the sender's fault, not ours
    """Not a message of the kind that it claims to be."""


class Sizes(NamedTuple):
    """What the lengths of arrays and tuples follow from."""

    parameters: int
    servers: int


class ArraySpec(NamedTuple):
    """An array of a message."""

    name: str
    dtype: np.dtype[Any]
    up_to: MaxLength | None
    """None: exactly as long as the model."""

    def length(self, claimed: int | None, sizes: Sizes) -> int:
        """How long it is, if it may be that long."""
        if self.up_to is None:
            return sizes.parameters
        most = sizes.parameters if self.up_to.count is None else self.up_to.count
        if claimed is None or not 0 <= claimed <= most:
            raise MalformedMessage(f"{self.name} with {claimed} entries; up to {most:,} are allowed")
        return claimed


class MessageSchema(NamedTuple):
    """What the fields of a kind of message say."""

    names: tuple[str, ...]
    """Of the fields that are no arrays."""
    read: msgspec.json.Decoder[Any]
    """Makes an object with these fields of JSON, or says what is wrong."""
    arrays: tuple[ArraySpec, ...]
    echoed: frozenset[str]
    per_server: frozenset[str]
    fixed: bool
    """Whether all messages of this kind are of the same size."""


_READ: dict[type[Any], MessageSchema] = {}


def schema_of(kind: type[Message]) -> MessageSchema:
    """What a message class says; it is read once."""
    said = _READ.get(kind)
    if said is None:
        said = _READ[kind] = read_schema(kind)
    return said


def read_schema(kind: type[Message]) -> MessageSchema:
    """Read a message class."""
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
            arrays.append(ArraySpec(name, np.dtype(dtype), next((m for m in marks if isinstance(m, MaxLength)), None)))
            continue
        echoed |= {name} if ECHOED in marks else set()
        per_server |= {name} if PER_SERVER in marks else set()
        bounded = bound(kind, name, inner, marks)
        fields.append((name, bounded | None, None) if optional or ECHOED in marks else (name, bounded))
    struct = msgspec.defstruct(kind.__name__, fields, forbid_unknown_fields=True, kw_only=True)
    fixed = all(array.up_to is None for array in arrays)
    names = tuple(field[0] for field in fields)
    read = msgspec.json.Decoder(struct)
    return MessageSchema(names, read, tuple(arrays), frozenset(echoed), frozenset(per_server), fixed)


def unwrap(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """A type without its marks, and the marks."""
    if typing.get_origin(hint) is Annotated:
        inner, *marks = typing.get_args(hint)
        return inner, tuple(marks)
    return hint, ()


def bound(kind: type[Message], name: str, hint: Any, marks: Sequence[Any]) -> Any:
    """A type whose values have bounds."""
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
        return Annotated[dict[Name, float], msgspec.Meta(max_length=MOST_ENTRIES)]
    raise TypeError(f"{kind.__name__}.{name} is declared as {hint}, which no message can hold; see {__name__}")


# --- There and back ---------------------------------------------------------------------------------------------------


def encode(message: Message, *, echoed: bool = True) -> tuple[dict[str, Any], list[Array]]:
    """A message as numbers that JSON can hold and arrays; without what the receiver knows, if it is sent back."""
    said = schema_of(type(message))
    numbers = {}
    for name in said.names:
        value = getattr(message, name)
        if value is not None and (echoed or name not in said.echoed):
            numbers[name] = value
    return numbers, [getattr(message, array.name) for array in said.arrays]


def as_json(numbers: dict[str, Any]) -> bytes:
    """The numbers as they travel."""
    return msgspec.json.encode(numbers, enc_hook=plain)


def plain(value: Any) -> Any:
    """What JSON can hold of the same meaning: for a number of NumPy's, or a table that is no dictionary."""
    return dict(value) if isinstance(value, Mapping) else value.item()


def lengths(arrays: Sequence[Array], kind: type[Message]) -> list[int]:
    """What a receiver cannot know of a message's arrays: the lengths of those that vary."""
    said = schema_of(kind)
    if said.fixed:
        return []
    return [array.size for form, array in zip(said.arrays, arrays, strict=True) if form.up_to is not None]


def expected(kind: type[Message], claimed: Sequence[int], sizes: Sizes) -> list[tuple[np.dtype[Any], int]]:
    """Types and lengths of the arrays of a message that begins to arrive."""
    forms, rest = schema_of(kind).arrays, list(claimed)
    found = [(form.dtype, form.length(rest.pop(0) if rest and form.up_to else None, sizes)) for form in forms]
    if rest:
        raise MalformedMessage(f"{len(rest)} arrays too many")
    return found


def decode(
    kind: type[M], numbers: bytes, arrays: Sequence[Array], sizes: Sizes, known: Mapping[str, Any] = NOTHING
) -> M:
    """The message back again, checked. Arrays are of the types and lengths that were :func:`expected`.

    What is ``known`` holds, whatever the numbers say.
    """
    said = schema_of(kind)
    try:
        read = said.read.decode(numbers)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedMessage(str(error)) from None
    values: dict[str, Any] = msgspec.structs.asdict(read)
    values.update(known)
    for name in said.echoed:
        if values[name] is None:
            raise MalformedMessage(f"no {name}")
    for form, array in zip(said.arrays, arrays, strict=True):
        values[form.name] = array
    return kind(**values)


def size_in_bytes(message: Message) -> int:
    """What a message takes on a link of the emulated world."""
    arrays: list[Array] = [getattr(message, form.name) for form in schema_of(type(message)).arrays]
    return HEADER_BYTES + sum(array.nbytes for array in arrays)
