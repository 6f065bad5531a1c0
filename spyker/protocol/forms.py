"""What a message's declaration says: how it becomes numbers and arrays, how large it is, and what a border refuses.

A field is a number, a truth value, a text, a table of numbers by name, a tuple of numbers, or an array. Types say
which, and marks in ``Annotated`` say what makes sense:

- ``weights: Vector`` is a float32 array as long as the model; ``Annotated[npt.NDArray[np.uint8], UpTo(1000)]`` an array
  of bytes of any length up to 1,000, and ``UpTo(None)`` one up to the model's length. A message may have several.
- ``Within(0, 10)`` bounds a number, or each number of a tuple. Whatever it says, numbers are finite.
- ``PER_SERVER`` is a tuple with one entry for each server that has clients.
- ``ECHOED`` is a field of a client's message that repeats what the server said; the server's host knows it.
- ``| None`` is a field that may be missing.
"""

from __future__ import annotations

import math
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from spyker.protocol.messages import Message

HEADER_BYTES = 64
MOST_ENTRIES, LONGEST_NAME = 256, 256  # of a table of numbers; of a text, or of a name in a table
Array = npt.NDArray[Any]
M = TypeVar("M", bound="Message")
NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Within:
    """At least ``least``, and less than ``below``."""

    least: float
    below: float


@dataclass(frozen=True, slots=True)
class UpTo:
    """An array of any length up to so many entries; ``None``: up to as many as the model has."""

    count: int | None


class Mark:
    """Something that a field is."""


PER_SERVER, ECHOED = Mark(), Mark()


class Malformed(ValueError):  # noqa: N818 - the sender's fault, not ours
    """Not a message of the kind that it claims to be."""


class Sizes(NamedTuple):
    """What the lengths of arrays and tuples follow from."""

    parameters: int
    servers: int


class ArrayForm(NamedTuple):
    """An array of a message."""

    name: str
    dtype: np.dtype[Any]
    up_to: UpTo | None
    """None: exactly as long as the model."""

    def length(self, claimed: int | None, sizes: Sizes) -> int:
        """How long it is, if it may be that long."""
        if self.up_to is None:
            return sizes.parameters
        most = sizes.parameters if self.up_to.count is None else self.up_to.count
        if claimed is None or not 0 <= claimed <= most:
            raise Malformed(f"{self.name} with {claimed} entries; up to {most:,} are allowed")
        return claimed


class Form(NamedTuple):
    """A field that is no array."""

    name: str
    optional: bool
    read: Callable[[str, object, Sizes], object]
    """Checks what arrived and makes the field of it."""


class Declaration(NamedTuple):
    """What the fields of a kind of message say."""

    forms: dict[str, Form]
    arrays: tuple[ArrayForm, ...]
    echoed: frozenset[str]
    required: frozenset[str]
    fixed: bool
    """Whether all messages of this kind are of the same size."""


_READ: dict[type[Any], Declaration] = {}


def declaration(kind: type[Message]) -> Declaration:
    """What a message class says; it is read once."""
    said = _READ.get(kind)
    if said is None:
        said = _READ[kind] = read_class(kind)
    return said


def read_class(kind: type[Message]) -> Declaration:
    """Read a message class."""
    forms: dict[str, Form] = {}
    arrays, echoed = [], []
    for name, hint in typing.get_type_hints(kind, include_extras=True).items():
        if typing.get_origin(hint) is typing.ClassVar:
            continue
        optional = typing.get_origin(hint) in (typing.Union, types.UnionType)
        if optional:
            (hint,) = (part for part in typing.get_args(hint) if part is not types.NoneType)
        inner, marks = unwrap(hint)
        if ECHOED in marks:
            echoed.append(name)
        if typing.get_origin(inner) is np.ndarray:
            (dtype,) = typing.get_args(typing.get_args(inner)[1])
            arrays.append(ArrayForm(name, np.dtype(dtype), next((m for m in marks if isinstance(m, UpTo)), None)))
        else:
            forms[name] = Form(name, optional, reader(kind, name, inner, marks))
    required = frozenset(name for name, form in forms.items() if not form.optional)
    fixed = all(array.up_to is None for array in arrays)
    return Declaration(forms, tuple(arrays), frozenset(echoed), required, fixed)


def unwrap(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """A type without its marks, and the marks."""
    if typing.get_origin(hint) is typing.Annotated:
        inner, *marks = typing.get_args(hint)
        return inner, tuple(marks)
    return hint, ()


def reader(kind: type[Message], name: str, hint: Any, marks: Sequence[Any]) -> Callable[[str, object, Sizes], object]:
    """What reads a field of this type."""
    if hint in (int, float):
        bounds = next((mark for mark in marks if isinstance(mark, Within)), None)
        return lambda field, value, sizes: number(field, value, hint, bounds)
    if hint is bool:
        return lambda field, value, sizes: instance(field, value, bool)
    if hint is str:
        return lambda field, value, sizes: short(field, instance(field, value, str))
    if typing.get_origin(hint) is tuple:
        entry, entry_marks = unwrap(typing.get_args(hint)[0])
        read = reader(kind, name, entry, entry_marks)
        return lambda field, value, sizes: entries(field, value, sizes, read, PER_SERVER in marks)
    if typing.get_origin(hint) in (Mapping, dict):
        return lambda field, value, sizes: table(field, value)
    raise TypeError(f"{kind.__name__}.{name} is declared as {hint}, which no message can hold; see {__name__}")


# --- What arrives -----------------------------------------------------------------------------------------------------


def number(field: str, value: object, kind: type, bounds: Within | None) -> int | float:
    """A finite number within its bounds."""
    if isinstance(value, bool) or not isinstance(value, int if kind is int else int | float):
        raise Malformed(f"the {field} {value!r:.60}, which is no {'whole ' if kind is int else ''}number")
    try:
        sensible = math.isfinite(value) and (bounds is None or bounds.least <= value < bounds.below)
    except OverflowError:  # a whole number beyond all floats
        sensible = False
    if not sensible:
        raise Malformed(f"the {field} {value!r:.60}")
    return kind(value)  # type: ignore[no-any-return]


def instance(field: str, value: object, kind: type) -> Any:
    """Something of this type."""
    if not isinstance(value, kind):
        raise Malformed(f"the {field} {value!r:.60}, which is no {kind.__name__}")
    return value


def short(field: str, text: str) -> str:
    """A text that is not too long."""
    if len(text) > LONGEST_NAME:
        raise Malformed(f"the {field} with {len(text):,} characters")
    return text


def entries(
    field: str, value: object, sizes: Sizes, read: Callable[[str, object, Sizes], object], per_server: bool
) -> tuple[object, ...]:
    """A tuple."""
    listed = instance(field, value, list) if not isinstance(value, tuple) else value
    if per_server and len(listed) != sizes.servers:
        raise Malformed(f"{len(listed)} {field} for {sizes.servers} servers")
    if len(listed) > max(MOST_ENTRIES, sizes.servers):
        raise Malformed(f"{len(listed):,} {field}")
    return tuple(read(field, entry, sizes) for entry in listed)


def table(field: str, value: object) -> dict[str, float]:
    """Numbers by name."""
    if len(instance(field, value, dict)) > MOST_ENTRIES:
        raise Malformed(f"{len(value):,} {field}")  # type: ignore[arg-type]
    return {
        short(field, instance(field, name, str)): number(f"{field} {name:.60}", entry, float, None)
        for name, entry in value.items()  # type: ignore[attr-defined]
    }


# --- There and back ---------------------------------------------------------------------------------------------------


def take_apart(message: Message, *, echoed: bool = True) -> tuple[dict[str, Any], list[Array]]:
    """A message as numbers that JSON can hold and arrays; without what the receiver knows, if it is sent back."""
    said = declaration(type(message))
    numbers = {}
    for name in said.forms:
        value = getattr(message, name)
        if value is not None and (echoed or name not in said.echoed):
            numbers[name] = dict(value) if isinstance(value, Mapping) else value
    return numbers, [getattr(message, array.name) for array in said.arrays]


def lengths(arrays: Sequence[Array], kind: type[Message]) -> list[int]:
    """What a receiver cannot know of a message's arrays: the lengths of those that vary."""
    forms = declaration(kind).arrays
    return [array.size for form, array in zip(forms, arrays, strict=True) if form.up_to is not None]


def expected(kind: type[Message], claimed: Sequence[int], sizes: Sizes) -> list[tuple[np.dtype[Any], int]]:
    """Types and lengths of the arrays of a message that begins to arrive."""
    forms, rest = declaration(kind).arrays, list(claimed)
    found = [(form.dtype, form.length(rest.pop(0) if rest and form.up_to else None, sizes)) for form in forms]
    if rest:
        raise Malformed(f"{len(rest)} arrays too many")
    return found


def put_together(
    kind: type[M],
    numbers: object,
    arrays: Sequence[Array],
    sizes: Sizes,
    known: Mapping[str, Any] = MappingProxyType({}),
) -> M:
    """The message back again, checked. Arrays are of the types and lengths that were :func:`expected`.

    What is ``known`` holds, whatever the numbers say.
    """
    said = declaration(kind)
    values: dict[str, Any] = {form.name: array for form, array in zip(said.arrays, arrays, strict=True)}
    values.update(known)
    for name, value in instance("content", numbers, dict).items():
        form = said.forms.get(name)
        if form is None:
            raise Malformed(f"a field {name!r:.60} that {kind.kind} does not have")
        if name not in known:
            values[name] = form.read(name, value, sizes)
    missing = said.required - values.keys()
    if missing:
        raise Malformed(f"no {min(missing)}")
    return kind(**values)


def size_in_bytes(message: Message) -> int:
    """What a message takes on a link of the emulated world."""
    arrays: list[Array] = [getattr(message, form.name) for form in declaration(type(message)).arrays]
    return HEADER_BYTES + sum(array.nbytes for array in arrays)
