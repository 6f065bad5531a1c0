"""Messages whose vectors are coded, derived from the declarations of messages.

``coded_kind(Update, "int8")`` is a subclass of :class:`~spyker.protocol.messages.Update` whose fields of the type
``Vector`` are declared as coded vectors; a coded :class:`~spyker.protocol.messages.Model` has further fields, because
it is a difference. So its encoding on the wire and in checkpoints, its size in the emulator and
its validation follow from its declaration, as those of every message do. Servers and clients code what they send and
decode what they receive (:mod:`~spyker.protocol.server_coder`, :mod:`~spyker.protocol.client_coder`); drivers see coded
messages, algorithms never do.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Annotated, Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from spyker.compression.block_codec import CODES, NONE
from spyker.protocol.codec import SINGLE, CodedAs, MaxLength, schema_of
from spyker.protocol.messages import BootstrapState, Message, Model, Whole
from spyker.protocol.public_model import MOST_CODED

M = TypeVar("M", bound=Message)
MODEL_FIELDS: list[Any] = [
    ("public_base", Whole, dataclasses.field(kw_only=True)),
    ("public_number", Whole, dataclasses.field(kw_only=True)),
    ("public", Annotated[npt.NDArray[np.float32], MaxLength(None)], dataclasses.field(kw_only=True)),
]
"""Further fields of coded models: those of :class:`~spyker.protocol.public_model.Difference`."""
_CODED: dict[tuple[type[Message], str], type[Message]] = {}  # by class and code
_PLAIN: dict[type[Message], type[Message]] = {}  # by coded class


def vector_fields(kind: type[Message]) -> list[str]:
    """Return the names of the fields that are vectors of the model's length."""
    return [form.name for form in schema_of(kind).arrays if form.mark is None and form.dtype == SINGLE]


def coded_kind(kind: type[M], code: str) -> type[M]:
    """Return the message class with coded vectors; the class itself if it has none, or is a joining server's state."""
    found = _CODED.get((kind, code))
    if found is None:
        found = _CODED[kind, code] = make_coded_kind(kind, code)
    return cast(type[M], found)


def make_coded_kind(kind: type[Message], code: str) -> type[Message]:
    """Make the class that :func:`coded_kind` returns."""
    names = vector_fields(kind)
    if code == NONE or not names or issubclass(kind, BootstrapState):
        return kind
    is_model = issubclass(kind, Model)
    mark = CodedAs(code, MOST_CODED if is_model else None)
    fields: list[Any] = [(name, Annotated[npt.NDArray[np.uint8], mark]) for name in names]
    fields += MODEL_FIELDS if is_model else []
    made: type[Message] = dataclasses.make_dataclass(
        f"{kind.__name__}{code.title()}",
        fields,
        bases=(kind,),
        namespace={"kind": f"{kind.kind}-{code}", "__module__": kind.__module__},
        frozen=True,
        slots=True,
        eq=False,
    )
    _PLAIN[made] = kind
    return made


def plain_kind(kind: type[Message]) -> type[Message] | None:
    """Return the class that a coded class was derived from; ``None`` for other classes."""
    return _PLAIN.get(kind)


def with_coded(kinds: Iterable[type[M]], code: str | None = None) -> dict[str, type[M]]:
    """Return message classes and their coded classes by kind; without a code, those of all codes."""
    codes = CODES if code is None else (NONE, code)
    return {made.kind: made for kind in kinds for made in (coded_kind(kind, each) for each in codes)}


def convert(message: Message, kind: type[M], **changes: Any) -> M:
    """Return a message of another class with the same fields, except those in ``changes``."""
    same = {f.name: getattr(message, f.name) for f in dataclasses.fields(kind) if f.name not in changes}  # type: ignore[arg-type]
    return kind(**same, **changes)
