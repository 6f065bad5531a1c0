"""Encoding of messages as frames of ``spyker.proto``, with as few copies of models as possible.

Chunks are encoded and parsed by hand, because the generated code copies each chunk twice. The bytes are those of the
generated code, and the parser accepts what the generated code accepts.
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

PROTOCOL = 7  # version of the wire protocol; both sides must use the same
CHUNK = 1 << 20
FRAME_LIMIT = CHUNK + (1 << 16)  # bytes of a frame; bodies are small
MAX_WEIGHT = 1e30  # so that differences and mixes of weights do not overflow float32
CHUNK_TAG = b"\x0a"  # field 1, length-delimited

assert sys.byteorder == "little", "weights are sent as little-endian float32, directly from memory"

Write: TypeAlias = Callable[[bytes], Awaitable[None]]
Read: TypeAlias = Callable[[], Awaitable[object]]


def with_chunk(chunk: memoryview, body: bytes = b"") -> bytes:
    """Return a frame with a chunk and, for the first chunk of a message, the message's body."""
    return b"".join((chunk_head(len(chunk)), chunk, body))


@lru_cache(maxsize=16)  # two lengths are common: that of a full chunk, and that of a model's last chunk
def chunk_head(length: int) -> bytes:
    """Return the tag and the length that precede a chunk."""
    head = bytearray(CHUNK_TAG)
    while length > 0x7F:
        head.append(length & 0x7F | 0x80)
        length >>= 7
    head.append(length)
    return bytes(head)


def split(data: bytes) -> tuple[memoryview | None, pb.Frame | None]:
    """Return the chunk and the body of a frame, each ``None`` if it is absent."""
    if len(data) > FRAME_LIMIT:
        raise Rejection("oversized", f"a frame has {len(data):,} bytes; {FRAME_LIMIT:,} are allowed")
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
            if shift > 28:  # longer than any chunk
                raise Rejection("malformed", "the length of a chunk is not terminated")
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
    """Write a message and return its number of bytes. Waits while the receiver is slower."""
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
    """Return the sum of squares; raise a rejection if a weight is not finite or exceeds ``MAX_WEIGHT``."""
    square = float(np.vdot(piece, piece))  # unlike dot, it does not warn of an overflow
    # A finite sum needs no second pass. The sum may overflow although the weights are finite. NaN fails the comparison.
    if not math.isfinite(square) and not -MAX_WEIGHT <= float(piece.min()) <= float(piece.max()) <= MAX_WEIGHT:
        raise Rejection("not-finite", f"a weight is not a finite number, or beyond ±{MAX_WEIGHT:g}")
    return square


def check_norm(square: float, max_norm: float | None) -> None:
    """Raise a rejection if the norm, whose square is given, exceeds the maximum."""
    if max_norm is not None and math.sqrt(square) > max_norm:
        raise Rejection("norm", f"the norm {math.sqrt(square):g} exceeds {max_norm:g}")


def in_one_piece(chunk: memoryview, max_norm: float | None = None) -> Vector:
    """Return the weights of a message in a single frame, as a read-only view of the frame."""
    vector = np.frombuffer(chunk, np.float32)
    check_norm(check_finite(vector), max_norm)
    return vector


class ChunkReceiver:
    """Copies arriving chunks into an array, and validates each chunk while it is in the processor's cache."""

    __slots__ = ("_array", "_filled", "_max_norm", "_square")

    def __init__(self, array: Array, max_norm: float | None = None) -> None:
        self._array, self._max_norm = array, max_norm
        self._filled = 0
        self._square = 0.0

    @property
    def whole(self) -> bool:
        """Whether the array is complete."""
        return self._filled == self._array.size

    def add(self, chunk: memoryview) -> None:
        """Add the next chunk; raise a rejection if it is invalid."""
        count, odd = divmod(len(chunk), self._array.itemsize)
        end = self._filled + count
        if odd or not count:
            raise Rejection("malformed", f"a chunk has {len(chunk)} bytes")
        if end > self._array.size:
            raise Rejection("oversized", f"more than the expected {self._array.size:,} numbers")
        piece = self._array[self._filled : end]
        piece[:] = np.frombuffer(chunk, self._array.dtype)
        if piece.dtype.kind == "f":
            self._square += check_finite(piece)
            if end == self._array.size:
                check_norm(self._square, self._max_norm)
        self._filled = end


async def receive(read: Read, chunk: memoryview | None, arrays: Sequence[Array], max_norm: float | None = None) -> int:
    """Fill the arrays of a message whose first chunk has arrived; return the number of bytes read.

    The arrays are read-only afterwards.
    """
    size, pending = 0, True
    for array in arrays:
        receiver = ChunkReceiver(array, max_norm)
        while not receiver.whole:
            if not pending:
                data = await read()
                if not isinstance(data, bytes):  # gRPC's object for the end of a stream
                    raise Rejection("truncated", "the stream ended before the weights were complete")
                size += len(data)
                chunk, frame = split(data)
                chunk = chunk if frame is None else None
            if chunk is None:
                raise Rejection("truncated", "another message begins before the weights are complete")
            receiver.add(chunk)
            pending = False
        array.flags.writeable = False
    if pending and chunk is not None:
        raise Rejection("malformed", "a chunk that belongs to no array")
    return size
