"""Conversion between messages of the protocol and frames."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from spyker.net import spyker_pb2 as pb
from spyker.net.frames import Read, check_norm, in_one_piece, receive
from spyker.node.rejection import Rejection
from spyker.protocol.codec import (
    SINGLE,
    Array,
    CodedAs,
    MalformedMessage,
    Sizes,
    as_json,
    decode,
    encode,
    expected,
    lengths,
    schema_of,
)
from spyker.protocol.messages import Message
from spyker.vectors import Vector, length


def fill(content: pb.Content, message: Message, *, echoed: bool = True) -> list[Array]:
    """Put a message into a frame's body, and return the arrays that follow it."""
    numbers, arrays = encode(message, echoed=echoed)
    kind = type(message)
    content.kind, content.fields = kind.kind, as_json(numbers)
    if not schema_of(kind).fixed:
        content.lengths.extend(lengths(arrays, kind))
    return arrays


class MessageValidator:
    """Validates the messages of a connection."""

    def __init__(self, kinds: Iterable[type[Message]], sizes: Sizes) -> None:
        self.kinds = {kind.kind: kind for kind in kinds}
        self.sizes = sizes
        self._shapes = {kind: expected(kind, (), sizes) for kind in self.kinds.values() if schema_of(kind).fixed}

    def arrive(self, content: pb.Content, chunk: memoryview | None) -> IncomingMessage:
        """Start to receive a message. An invalid one is rejected before its arrays are read."""
        kind = self.kinds.get(content.kind)
        if kind is None:
            allowed = ", ".join(sorted(self.kinds)) or "nothing"
            raise Rejection("malformed", f"a message of the kind {content.kind!r:.60}; it may be {allowed}")
        shapes = self._shapes.get(kind)
        if shapes is None or content.lengths:
            try:
                shapes = expected(kind, content.lengths, self.sizes)
            except MalformedMessage as error:
                raise Rejection("malformed", f"{error}, in a message of the kind {kind.kind}") from None
        return IncomingMessage(kind, content.fields, chunk, shapes, self.sizes)


class IncomingMessage:
    """A message whose first frame has arrived."""

    __slots__ = ("_chunk", "_fields", "_shapes", "_sizes", "kind")

    def __init__(
        self,
        kind: type[Message],
        fields: bytes,
        chunk: memoryview | None,
        shapes: list[tuple[np.dtype[Any], int]],
        sizes: Sizes,
    ) -> None:
        self.kind, self._fields, self._chunk, self._shapes, self._sizes = kind, fields, chunk, shapes, sizes

    @property
    def bytes(self) -> int:
        """Size of its arrays in bytes."""
        return sum(dtype.itemsize * count for dtype, count in self._shapes)

    @property
    def whole(self) -> bool:
        """Whether the first frame is the whole message: it has no arrays, or one float32 array in one chunk."""
        if not self._shapes:
            return True
        dtype, count = self._shapes[0]
        return len(self._shapes) == 1 and dtype == SINGLE and len(self._chunk or b"") == 4 * count > 0

    def now(self, max_norm: float | None = None, **echoed: Any) -> Message:
        """Return the message, which must be whole; ``echoed`` are fields that the sender does not repeat."""
        arrays: list[Array] = []
        if self._shapes and self._chunk is not None:
            arrays.append(in_one_piece(self._chunk, max_norm))
        elif self._chunk is not None:
            raise Rejection("malformed", f"weights in a message of the kind {self.kind.kind}")
        return self._message(arrays, echoed)

    async def later(
        self, read: Read, vector: Callable[[], Vector], max_norm: float | None = None, **echoed: Any
    ) -> tuple[Message, int]:
        """Read the rest of the message; return the message and the number of bytes read.

        Args:
            read: reads the next frame.
            vector: returns a buffer for an array of the model's length.
            max_norm: maximum norm of the weights.
            **echoed: fields that the sender does not repeat.

        """
        arrays: list[Array] = [
            vector() if (dtype, count) == (SINGLE, self._sizes.parameters) else np.empty(count, dtype)
            for dtype, count in self._shapes
        ]
        size = await receive(read, self._chunk, arrays, max_norm)
        message = self._message(arrays, echoed)
        for form, array in zip(schema_of(self.kind).arrays, arrays, strict=True):
            if max_norm is not None and isinstance(form.mark, CodedAs) and array.size:
                check_norm(length(form.mark.decoded(array, self._sizes)) ** 2, max_norm)
        return message, size

    def _message(self, arrays: list[Array], known: Mapping[str, Any]) -> Message:
        try:
            wanted = schema_of(self.kind).echoed
            known = {name: value for name, value in known.items() if name in wanted}
            return decode(self.kind, self._fields, arrays, self._sizes, known)
        except MalformedMessage as error:
            raise Rejection("malformed", f"{error}, in a message of the kind {self.kind.kind}") from None
