"""Between the protocol's messages, which declare themselves, and frames."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from spyker.deploy import spyker_pb2 as pb
from spyker.deploy.frames import Read, in_one_piece, receive
from spyker.host.refusal import Refusal
from spyker.protocol.forms import Array, Malformed, Sizes, declaration, expected, lengths, put_together, take_apart
from spyker.protocol.messages import Message
from spyker.vectors import Vector

SINGLE = np.dtype(np.float32)


def outgoing(message: Message, *, echoed: bool = True) -> tuple[pb.Content, list[Array]]:
    """A message as what goes into a frame's body, and the arrays that follow it."""
    numbers, arrays = take_apart(message, echoed=echoed)
    kind = type(message)
    return pb.Content(kind=kind.kind, fields=json.dumps(numbers).encode(), lengths=lengths(arrays, kind)), arrays


class Incoming:
    """A message whose first frame is here. What is wrong with it is refused before anything is read or kept."""

    __slots__ = ("_chunk", "_content", "_shapes", "_sizes", "kind")

    def __init__(
        self, content: pb.Content, chunk: memoryview | None, kinds: Mapping[str, type[Message]], sizes: Sizes
    ) -> None:
        kind = kinds.get(content.kind)
        if kind is None:
            allowed = ", ".join(sorted(kinds)) or "nothing"
            raise Refusal("malformed", f"a message of the kind {content.kind!r:.60}; it may be {allowed}")
        self.kind, self._content, self._chunk, self._sizes = kind, content, chunk, sizes
        try:
            self._shapes = expected(kind, content.lengths, sizes)
        except Malformed as error:
            raise Refusal("malformed", f"{error}, in a message of the kind {kind.kind}") from None

    @property
    def bytes(self) -> int:
        """How much its arrays take."""
        return sum(dtype.itemsize * count for dtype, count in self._shapes)

    @property
    def whole(self) -> bool:
        """Whether there is nothing more to read: it has no arrays, or one single-precision array in one chunk."""
        if not self._shapes:
            return True
        return len(self._shapes) == 1 and self._shapes[0][0] == SINGLE and len(self._chunk or b"") == self.bytes > 0

    def now(self, max_norm: float | None = None, **echoed: Any) -> Message:
        """The message, if it is whole; ``echoed`` is what its sender need not repeat."""
        arrays: list[Array] = []
        if self._shapes and self._chunk is not None:
            arrays.append(in_one_piece(self._chunk, max_norm))
        elif self._chunk is not None:
            raise Refusal("malformed", f"weights in a message of the kind {self.kind.kind}")
        return self._message(arrays, echoed)

    async def later(
        self, read: Read, vector: Callable[[], Vector], max_norm: float | None = None, **echoed: Any
    ) -> tuple[Message, int]:
        """The message, once the rest of it has been read, and how many bytes that was.

        ``vector`` gives memory for what is as long as the model.
        """
        arrays: list[Array] = [
            vector() if (dtype, count) == (SINGLE, self._sizes.parameters) else np.empty(count, dtype)
            for dtype, count in self._shapes
        ]
        size = await receive(read, self._chunk, arrays, max_norm)
        return self._message(arrays, echoed), size

    def _message(self, arrays: list[Array], echoed: Mapping[str, Any]) -> Message:
        wanted = declaration(self.kind).echoed
        try:
            numbers = json.loads(self._content.fields)
            if isinstance(numbers, dict):
                numbers |= {name: value for name, value in echoed.items() if name in wanted}
            return put_together(self.kind, numbers, arrays, self._sizes)
        except (Malformed, ValueError, RecursionError) as error:
            raise Refusal("malformed", f"{error}, in a message of the kind {self.kind.kind}") from None
