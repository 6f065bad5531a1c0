"""Codes of float32 vectors: half precision, or integers of 8 or 4 bits with one step per block.

Theory of operation
-------------------
``int8`` and ``int4`` divide a vector into blocks of 64 numbers. All numbers of a block are multiples of its *step*, the
largest magnitude divided by the number of levels on either side (127 or 7). A level is rounded to the nearest integer,
so the error is at most half a step. ``fp16`` rounds each number to half precision.

A step is the upper half of a float32, rounded up: 16 bits with the exponents of a float32. Level times step is exact,
so every machine decodes the same bits. Numbers below 10⁻³⁷ become 0. Numbers that are not finite, or above 10³⁰ (in
``fp16``, above 65,504), cannot be coded.

*Buffers* at the end of a vector, such as the variances of BatchNorm, stay in float32: they are few, their magnitudes
differ, and a rounded variance could become negative.

The bytes of a coded vector are the steps of all blocks, the levels of all numbers, and the buffers. With ``int4``,
levels are stored as ``level + 8`` and two share a byte: in each chunk of 65,536 numbers, the first half of the chunk is
in the lower four bits. The last block is padded with zeros, which the decoder ignores.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from spyker.vectors import Vector

NONE, FP16, INT8, INT4 = "none", "fp16", "int8", "int4"
CODES = (NONE, FP16, INT8, INT4)
LEVELS = {INT8: 127, INT4: 7}
BLOCK = 64
CHUNK = 1 << 16  # numbers; the scratch memory of a chunk fits in a second-level cache
STEP_BYTES = 2
SMALLEST_STEP = np.uint32(0x0100)  # upper half of 2.4e-38; its inverse is finite
LARGEST_STEP = np.uint32(0x71C9)  # upper half of 1.99e30
LARGEST, LARGEST_HALF = np.float32(1e30).view(np.uint32), np.float32(65520).view(np.uint32)
MAGNITUDE = np.uint32(0x7FFFFFFF)
BIAS = 8  # of a level of int4

Coded: TypeAlias = npt.NDArray[np.uint8]


class UncodableError(ValueError):
    """A vector has numbers that are not finite or too large."""


class CodedSize(NamedTuple):
    """Numbers of bytes of the parts of a coded vector."""

    steps: int
    levels: int
    buffers: int


def size_of(code: str, parameters: int, buffers: int = 0) -> CodedSize:
    """Return the size of a coded vector of ``parameters`` numbers, of which the last ``buffers`` are buffers."""
    count = parameters - buffers
    blocks = -(-count // BLOCK)
    if code == FP16:
        return CodedSize(0, 2 * count, 4 * buffers)
    return CodedSize(STEP_BYTES * blocks, count if code == INT8 else blocks * BLOCK // 2, 4 * buffers)


def encode(vector: Vector, code: str, buffers: int = 0) -> Coded:
    """Code a vector.

    Args:
        vector: the numbers.
        code: ``fp16``, ``int8`` or ``int4``.
        buffers: number of buffers at the end, which are not rounded.

    Raises:
        UncodableError: a number is not finite, or too large.

    """
    size = size_of(code, vector.size, buffers)
    coded = np.empty(sum(size), np.uint8)
    count = vector.size - buffers
    rest = vector[count:]
    if not bool(np.isfinite(rest).all()):
        raise UncodableError("a buffer is not finite")
    coded[size.steps + size.levels :] = rest.view(np.uint8)
    numbers = vector[:count]
    if code == FP16:
        encode_half(numbers, coded[: size.levels].view(np.float16))
    else:
        encode_levels(numbers, LEVELS[code], coded[: size.steps].view(np.uint16), coded[size.steps :][: size.levels])
    return coded


def encode_half(numbers: Vector, out: npt.NDArray[np.float16]) -> None:
    """Round numbers to half precision."""
    bits = np.empty(min(CHUNK, numbers.size), np.uint32)
    for start in range(0, numbers.size, CHUNK):
        piece = numbers[start : start + CHUNK]
        magnitudes = np.bitwise_and(piece.view(np.uint32), MAGNITUDE, out=bits[: piece.size])
        if magnitudes.max() >= LARGEST_HALF:
            raise UncodableError("a number is not finite, or above 65,504")
        np.copyto(out[start : start + CHUNK], piece, casting="same_kind")


def encode_levels(numbers: Vector, levels: int, steps: npt.NDArray[np.uint16], out: Coded) -> None:
    """Round numbers to multiples of a step for each block."""
    scratch = np.empty(min(CHUNK, padded(numbers.size)), np.float32)
    packed = levels == LEVELS[INT4]
    for start, piece, chunk in pieces(numbers, scratch):
        rows = chunk.reshape(-1, BLOCK)
        magnitudes = np.bitwise_and(
            rows.view(np.uint32), MAGNITUDE, out=scratch[: chunk.size].view(np.uint32).reshape(rows.shape)
        )
        largest = np.maximum.reduce(magnitudes, axis=1)
        if largest.max() > LARGEST:
            raise UncodableError("a number is not finite, or above 1e30")
        upper = np.divide(largest.view(np.float32), np.float32(levels)).view(np.uint32)
        upper += np.uint32(0xFFFF)
        upper >>= np.uint32(16)
        upper[upper < SMALLEST_STEP] = 0
        first = start // BLOCK
        steps[first : first + upper.size] = upper
        step = np.left_shift(upper, np.uint32(16), out=upper).view(np.float32)
        inverse = np.divide(np.float32(1), step, out=np.zeros_like(step), where=step > 0)
        found = np.multiply(rows, inverse[:, None], out=scratch[: chunk.size].reshape(rows.shape)).reshape(-1)
        np.rint(found, out=found)
        if packed:
            half = found.size // 2
            low, high = found[:half], found[half:]
            np.multiply(high, np.float32(16), out=high)
            np.add(high, low, out=high)
            np.add(high, np.float32(16 * BIAS + BIAS), out=high)
            np.copyto(out[start // 2 : start // 2 + half], high, casting="unsafe")
        else:
            np.copyto(out[start : start + piece].view(np.int8), found[:piece], casting="unsafe")


def pieces(numbers: Vector, scratch: Vector) -> Iterator[tuple[int, int, Vector]]:
    """Yield, chunk by chunk, the start, the count, and the numbers padded to whole blocks."""
    for start in range(0, numbers.size, CHUNK):
        chunk = numbers[start : start + CHUNK]
        count = chunk.size
        if count % BLOCK:
            whole = np.zeros(padded(count), np.float32)
            whole[:count] = chunk
            chunk = whole
        yield start, count, chunk


def padded(count: int) -> int:
    """Return the count rounded up to whole blocks."""
    return -(-count // BLOCK) * BLOCK


def decode(coded: Coded, code: str, parameters: int, buffers: int = 0, onto: Vector | None = None) -> Vector:
    """Decode a vector.

    Args:
        coded: the bytes that :func:`encode` returned, or that :func:`check` accepted.
        code: ``fp16``, ``int8`` or ``int4``.
        parameters: length of the vector.
        buffers: number of buffers at its end.
        onto: a vector to which the decoded one is added; it is not modified.

    """
    size, count = size_of(code, parameters, buffers), parameters - buffers
    out = np.empty(parameters, np.float32)
    out[count:] = coded[size.steps + size.levels :].view(np.float32)
    steps = None if code == FP16 else coded[: size.steps].view(np.uint16)
    levels = coded[size.steps : size.steps + size.levels]
    scratch = np.empty(min(CHUNK, padded(count)), np.float32) if code != FP16 else out
    for start in range(0, count, CHUNK):
        piece = out[start : min(count, start + CHUNK)]
        if steps is None:
            np.copyto(piece, levels.view(np.float16)[start : start + piece.size])
        else:
            decode_levels(steps, levels, code, start, piece, scratch)
        if onto is not None:
            np.add(onto[start : start + piece.size], piece, out=piece)
    if onto is not None:
        np.add(onto[count:], out[count:], out=out[count:])
    return out


def decode_levels(
    steps: npt.NDArray[np.uint16], levels: Coded, code: str, start: int, out: Vector, scratch: Vector
) -> None:
    """Decode one chunk."""
    whole = padded(out.size)
    found = out if whole == out.size else scratch[:whole]
    first = start // BLOCK
    step = np.left_shift(steps[first : first + whole // BLOCK], np.uint32(16), dtype=np.uint32).view(np.float32)
    if code == INT4:
        half = whole // 2
        both = levels[start // 2 : start // 2 + half]
        np.copyto(found[:half], both & 15)
        np.copyto(found[half:], both >> 4)
        np.subtract(found, np.float32(BIAS), out=found)
    else:
        found[out.size :] = 0
        np.copyto(found[: out.size], levels[start : start + out.size].view(np.int8))
    rows = found.reshape(-1, BLOCK)
    np.multiply(rows, step[:, None], out=rows)
    if found is not out:
        out[:] = found[: out.size]


def check(coded: Coded, code: str, parameters: int, buffers: int = 0) -> None:
    """Raise a ``ValueError`` if bytes of the right number are not a coded vector of finite numbers."""
    size = size_of(code, parameters, buffers)
    if coded.size != sum(size):
        raise ValueError(f"{coded.size:,} bytes are not allowed: {sum(size):,} are expected")
    if code == FP16:
        if bool(((coded[: size.levels].view(np.uint16) & 0x7C00) == 0x7C00).any()):
            raise ValueError("a number is not finite")
    elif size.steps and int(coded[: size.steps].view(np.uint16).max()) > LARGEST_STEP:
        raise ValueError("the step of a block is negative, not finite or too large")
    if not bool(np.isfinite(coded[size.steps + size.levels :].view(np.float32)).all()):
        raise ValueError("a buffer is not finite")


def encode_with_error(vector: Vector, code: str, buffers: int = 0) -> tuple[Coded, Vector]:
    """Code a vector that the caller gives up; return the code and what the rounding lost."""
    coded = encode(vector, code, buffers)
    np.subtract(vector, decode(coded, code, vector.size, buffers), out=vector)
    return coded, vector
