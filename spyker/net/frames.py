"""Between messages and the bytes of a stream: what ``spyker.proto`` says, without copying models more than needed.

Chunks are written and found by hand. What is written is what the generated code would write, to the byte, and what it
would accept is accepted; but the generated code copies a chunk into a message, and the message into bytes.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from google.protobuf.message import DecodeError

from spyker.net import spyker_pb2 as pb
from spyker.node.rejection import Rejection
from spyker.protocol.codec import Array
from spyker.vectors import Vector

PROTOCOL = 5  # version of the wire protocol; both sides must use the same
CHUNK = 1 << 20
FRAME_LIMIT = CHUNK + (1 << 16)  # of a whole frame; what is no chunk is small
LARGEST = 1e30  # of a weight; a mix of bounded weights is bounded, while the difference of two float32 may overflow
CHUNK_TAG = b"\x0a"  # field 1, length-delimited

assert sys.byteorder == "little", "weights travel as little-endian float32, straight from memory"

Write: TypeAlias = Callable[[bytes], Awaitable[None]]
Read: TypeAlias = Callable[[], Awaitable[object]]


def with_chunk(chunk: memoryview, body: bytes = b"") -> bytes:
    """A frame that carries a chunk and, if it is the first of a message, the message's body."""
    return b"".join((chunk_head(len(chunk)), chunk, body))


@lru_cache(maxsize=16)  # a deployment knows two lengths: of a whole chunk, and of the last one
def chunk_head(length: int) -> bytes:
    """What comes before a chunk: the field's tag and the chunk's length."""
    head = bytearray(CHUNK_TAG)
    while length > 0x7F:
        head.append(length & 0x7F | 0x80)
        length >>= 7
    head.append(length)
    return bytes(head)


def split(data: bytes) -> tuple[memoryview | None, pb.Frame | None]:
    """The chunk and the body of a frame, where it has them."""
    if len(data) > FRAME_LIMIT:
        raise Rejection("oversized", f"a frame of {len(data):,} bytes; {FRAME_LIMIT:,} are allowed")
    try:
        if data[:1] != CHUNK_TAG:
            frame = pb.Frame.FromString(data)
            return memoryview(frame.chunk) if frame.chunk else None, frame
        length = shift = 0
        start = 1
        while True:
            byte = data[start]
            start += 1
            length |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 28:  # no chunk is that long
                raise Rejection("malformed", "a chunk whose length has no end")
        end = start + length
        if end == len(data):
            return memoryview(data)[start:], None
        if end > len(data):
            raise Rejection("malformed", "a chunk is longer than its frame")
        frame = pb.Frame.FromString(data[end:])
        if frame.chunk:
            raise Rejection("malformed", "two chunks in one frame")
        return memoryview(data)[start:end], frame
    except (DecodeError, IndexError):
        raise Rejection("malformed", "not a frame of this protocol") from None


async def send(write: Write, body: bytes, arrays: Sequence[Array] = ()) -> int:
    """Write a message and return the number of its bytes. Awaits whenever the receiver is slower than we are."""
    size = len(body)
    for array in arrays:
        raw = array.data.cast("B")
        size += len(raw)
        for start in range(0, len(raw), CHUNK):
            await write(with_chunk(raw[start : start + CHUNK], body))
            body = b""
    if body:
        await write(body)
    return size


def check_finite(piece: Array) -> float:
    """Refuse weights that are not numbers, or so large that mixing them might not be one; return the sum of squares."""
    with np.errstate(over="ignore", invalid="ignore"):
        square = float(np.dot(piece, piece))
    # One look suffices if this is finite. It may be beyond float32 though the weights are not: then look closer.
    if not math.isfinite(square) and not -LARGEST <= float(piece.min()) <= float(piece.max()) <= LARGEST:  # nor is NaN
        raise Rejection("not-finite", f"a weight is not a finite number, or beyond ±{LARGEST:g}")
    return square


def check_norm(square: float, max_norm: float | None) -> None:
    """Refuse a model, by the square of its norm."""
    if max_norm is not None and math.sqrt(square) > max_norm:
        raise Rejection("norm", f"the norm {math.sqrt(square):g} exceeds {max_norm:g}")


def in_one_piece(chunk: memoryview, max_norm: float | None = None) -> Vector:
    """The weights of a message that is a single frame: read-only, and where they arrived."""
    vector = np.frombuffer(chunk, np.float32)
    check_norm(check_finite(vector), max_norm)
    return vector


class ChunkReceiver:
    """Fills an array with the chunks of a message, as they come, and looks at every number while it is in cache."""

    __slots__ = ("_array", "_filled", "_max_norm", "_square")

    def __init__(self, array: Array, max_norm: float | None = None) -> None:
        self._array, self._max_norm = array, max_norm
        self._filled = 0
        self._square = 0.0

    @property
    def whole(self) -> bool:
        """Whether the last number has come."""
        return self._filled == self._array.size

    def add(self, chunk: memoryview) -> None:
        """Take the next chunk, or refuse the message."""
        count, odd = divmod(len(chunk), self._array.itemsize)
        end = self._filled + count
        if odd or not count:
            raise Rejection("malformed", f"a chunk of {len(chunk)} bytes")
        if end > self._array.size:
            raise Rejection("oversized", f"more than the {self._array.size:,} numbers that are expected")
        piece = self._array[self._filled : end]
        piece[:] = np.frombuffer(chunk, self._array.dtype)
        if piece.dtype.kind == "f":
            self._square += check_finite(piece)
            if end == self._array.size:
                check_norm(self._square, self._max_norm)
        self._filled = end


async def receive(read: Read, chunk: memoryview | None, arrays: Sequence[Array], max_norm: float | None = None) -> int:
    """Fill the arrays of a message whose first chunk is here; return the bytes that were read.

    Nobody writes to them afterwards.
    """
    size, here = 0, True
    for array in arrays:
        intake = ChunkReceiver(array, max_norm)
        while not intake.whole:
            if not here:
                data = await read()
                if not isinstance(data, bytes):  # gRPC has an object of its own for the end of a stream
                    raise Rejection("truncated", "the stream ended before the weights were complete")
                size += len(data)
                chunk, frame = split(data)
                chunk = chunk if frame is None else None
            if chunk is None:
                raise Rejection("truncated", "another message begins before the weights are complete")
            intake.add(chunk)
            here = False
        array.flags.writeable = False
    if here and chunk is not None:
        raise Rejection("malformed", "a chunk that belongs to no array")
    return size
