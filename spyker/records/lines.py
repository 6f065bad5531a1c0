"""Conversion of facts to lines of JSON and back.

NumPy numbers are written as numbers. JSON has neither NaN nor infinity: they are written as ``null``, and ``null`` in
place of a float is read as NaN.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import operator
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from spyker.protocol.facts import KINDS, Fact
from spyker.records.run_facts import UnknownFact
from spyker.untrusted_files import check_depth

F = TypeVar("F", bound=Fact, covariant=True)


class RecordedFact(NamedTuple, Generic[F]):
    """A fact in a record, with its time and, for an update, the length of the server's queue."""

    t: float
    fact: F
    queue: int | None = None


# --- Writing ---------------------------------------------------------------------------------------------------------


PLAIN = ({int}, {float}, {int, float})


class _Templates(dict[type[Fact], tuple[str, Callable[[Any], tuple[Any, ...]]] | None]):
    """Format strings, by kind, for facts of at least two fields that are all finite numbers: the common case."""

    def __missing__(self, kind: type[Fact]) -> tuple[str, Callable[[Any], tuple[Any, ...]]] | None:
        names = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]  # facts are dataclasses
        self[kind] = None
        if len(names) > 1 and isinstance(kind.kind, str):
            start = '{"t": %r, ' + f'"kind": {json.dumps(kind.kind)}'.replace("%", "%%")
            self[kind] = start + "".join(f', "{name}": %r' for name in names), operator.attrgetter(*names)
        return self[kind]


_TEMPLATES = _Templates()


def line(t: float, fact: Fact, queue: int | None = None) -> str:
    """Return a fact as a line of the file. Times are rounded to nanoseconds."""
    template = _TEMPLATES[type(fact)]
    if template is not None:
        values = template[1](fact)
        if {*map(type, values)} in PLAIN and math.isfinite(sum(values)):
            text = template[0] % (round(t, 9), *values)
            return text + "}\n" if queue is None else f'{text}, "queue": {queue}}}\n'
    return _any_line(t, fact, queue)


def fields(fact: Fact) -> dict[str, Any]:
    """Return the fields of a fact by name."""
    if isinstance(fact, UnknownFact):
        return dict(fact.fields)
    return {field.name: getattr(fact, field.name) for field in dataclasses.fields(fact)}  # type: ignore[arg-type]


def _any_line(t: float, fact: Fact, queue: int | None) -> str:
    table = {"t": round(t, 9), "kind": fact.kind, **fields(fact)} | ({} if queue is None else {"queue": queue})
    return json.dumps(jsonable(table), allow_nan=False) + "\n"


def jsonable(value: Any) -> Any:
    """Convert a value to JSON values."""
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): jsonable(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(each) for each in value]
    if dataclasses.is_dataclass(value):
        return {field.name: jsonable(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if hasattr(value, "tolist"):  # NumPy's numbers and arrays, and PyTorch's
        return jsonable(value.tolist())
    return value


# --- Reading ---------------------------------------------------------------------------------------------------------


LARGEST, LATEST = 1 << 63, 1e15  # absolute value of an integer; of a time in seconds
_decode = msgspec.json.Decoder().decode  # several times as fast as the standard library's


def parse(text: str | bytes) -> RecordedFact[Fact] | None:
    """Parse a line; return ``None`` if it is damaged."""
    try:
        table = _decode(text)
        t, kind, queue = table.pop("t"), table.pop("kind"), table.pop("queue", None)
        if t is None or type(kind) is not str or not -LATEST <= t <= LATEST:
            return None
        return RecordedFact(_read_float(t), _fact(kind, table), None if queue is None else _exactly(int, queue))
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        return None


def _fact(kind: str, table: dict[str, Any]) -> Fact:
    known = KINDS.get(kind)
    if known is not None:
        try:
            return typing.cast(Fact, _build(known, table))
        except (TypeError, KeyError):
            pass  # written by another version
    check_depth(table)
    return UnknownFact(kind, table)


def _build(kind: type, table: Any) -> object:
    """Create a dataclass from a dictionary with exactly its fields."""
    readers = _readers(kind)
    if not isinstance(table, dict) or len(table) != len(readers):
        raise TypeError(f"not the fields of {kind.__name__}")
    return kind(*[read(table[name]) for name, read in readers])


@functools.cache
def _readers(kind: type) -> list[tuple[str, Callable[[Any], Any]]]:
    hints = typing.get_type_hints(kind)
    return [(field.name, _reader(hints[field.name])) for field in dataclasses.fields(kind)]


def _reader(hint: Any) -> Callable[[Any], Any]:
    """Return a function that converts a JSON value to a type, or raises ``TypeError``."""
    origin, of = typing.get_origin(hint), typing.get_args(hint)
    if hint is float:
        return _read_float
    if hint in (int, str, bool):
        return functools.partial(_exactly, hint)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return functools.partial(_build, hint)
    if origin in (list, tuple) and len(of) - of.count(Ellipsis) == 1:
        each = _reader(of[0])
        return lambda value: origin(map(each, _exactly(list, value)))
    if origin is dict:
        each = _reader(of[1])
        return lambda value: {key: each(item) for key, item in _exactly(dict, value).items()}
    if origin in (typing.Union, types.UnionType) and len(of) == 2 and types.NoneType in of:
        some = _reader(of[0] if of[1] is types.NoneType else of[1])
        return lambda value: None if value is None else some(value)
    return lambda value: value


def _read_float(value: Any) -> float:
    if value is None:
        return math.nan
    if type(value) is float or (type(value) is int and -LARGEST <= value <= LARGEST):
        return value
    raise TypeError("not a number")


def _exactly(kind: type, value: Any) -> Any:
    if type(value) is kind and (type(value) is not int or -LARGEST <= value <= LARGEST):
        return value
    raise TypeError(f"not {kind.__name__}")
