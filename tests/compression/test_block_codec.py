"""Coded vectors: how far they are from the original, and what cannot be coded or decoded."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spyker.compression.block_codec import (
    BLOCK,
    CHUNK,
    CODES,
    FP16,
    LEVELS,
    NONE,
    UncodableError,
    check,
    decode,
    encode,
    encode_with_error,
    size_of,
)
from spyker.vectors import Vector

CODED = [code for code in CODES if code != NONE]
ROUNDED_UP = 1 + 2**-7  # a step keeps eight bits of its mantissa


def vectors(most: int = 300) -> st.SearchStrategy[Vector]:
    numbers = st.floats(-6e4, 6e4, width=32) | st.sampled_from([0.0, -0.0, 1e-30, -1e-40, 1.0])
    return st.lists(numbers, min_size=1, max_size=most).map(lambda values: np.array(values, np.float32))


def steps(vector: Vector, code: str) -> Vector:
    """Return the largest step that each number's block may have."""
    whole = np.zeros(-(-vector.size // BLOCK) * BLOCK, np.float64)
    whole[: vector.size] = np.abs(vector)
    return np.repeat(whole.reshape(-1, BLOCK).max(axis=1), BLOCK)[: vector.size] / LEVELS[code] * ROUNDED_UP


@given(vector=vectors(), code=st.sampled_from(list(LEVELS)))
def test_a_number_is_at_most_half_a_step_of_its_block_off(vector: Vector, code: str) -> None:
    found = decode(encode(vector, code), code, vector.size)
    assert (np.abs(found.astype(np.float64) - vector) <= steps(vector, code) * 0.5001 + 1e-36).all()


@given(vector=vectors())
def test_half_precision_is_that_of_numpy(vector: Vector) -> None:
    assert (decode(encode(vector, FP16), FP16, vector.size) == vector.astype(np.float16)).all()


@given(value=st.floats(2**-12, 6e4, width=32), count=st.integers(1, 3 * BLOCK), code=st.sampled_from(CODED))
def test_constant_blocks_are_as_near_as_a_step_allows_and_zeros_are_exact(value: float, count: int, code: str) -> None:
    vector = np.full(count, value, np.float32)
    half_step = ROUNDED_UP / 2 / LEVELS[code] if code in LEVELS else 2**-11
    assert decode(encode(vector, code), code, count) == pytest.approx(vector, rel=half_step * 1.001)
    zeros = np.zeros(count, np.float32)
    assert not decode(encode(zeros, code), code, count).any()


@pytest.mark.parametrize("code", CODED)
@pytest.mark.parametrize("count", [1, BLOCK - 1, BLOCK, BLOCK + 1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 70])
def test_any_length_is_coded_in_the_declared_bytes_and_alike_in_every_chunk(code: str, count: int) -> None:
    vector = np.random.default_rng(count).normal(size=count).astype(np.float32)
    coded = encode(vector, code)
    assert coded.size == sum(size_of(code, count))
    check(coded, code, count)
    found = decode(coded, code, count)
    assert np.abs(found - vector).max() < {"fp16": 2e-3, "int8": 2e-2, "int4": 0.4}[code]
    last = count // BLOCK * BLOCK  # the last block, coded alone
    if last < count:
        assert (decode(encode(vector[last:], code), code, count - last) == found[last:]).all()


@given(vector=vectors(100), code=st.sampled_from(CODED), buffers=st.integers(0, 5))
def test_buffers_are_exact(vector: Vector, code: str, buffers: int) -> None:
    vector = np.concatenate([vector, np.array([1e-12, 3e9, -7.0, 1e4, 0.1], np.float32)[:buffers]])
    coded = encode(vector, code, buffers)
    assert coded.size == sum(size_of(code, vector.size, buffers))
    found = decode(coded, code, vector.size, buffers)
    assert (found[vector.size - buffers :] == vector[vector.size - buffers :]).all()


@given(vector=vectors(), code=st.sampled_from(CODED))
def test_a_vector_is_added_to_another_without_changing_it(vector: Vector, code: str) -> None:
    coded, other = encode(vector, code), np.ones_like(vector)
    assert (decode(coded, code, vector.size, onto=other) == 1 + decode(coded, code, vector.size)).all()
    assert (other == 1).all()


@settings(max_examples=30)
@given(code=st.sampled_from(CODED), seed=st.integers(0, 1000))
def test_with_error_feedback_the_sum_of_what_is_sent_is_that_of_what_was_to_be_sent(code: str, seed: int) -> None:
    random = np.random.default_rng(seed)
    error, sent, total = np.zeros(200, np.float32), np.zeros(200), np.zeros(200)
    for _ in range(20):
        update = random.normal(size=200).astype(np.float32)
        coded, error = encode_with_error(update + error, code)
        sent += decode(coded, code, 200)
        total += update
    assert sent + error == pytest.approx(total, abs=1e-4)
    assert np.abs(error).max() < 0.6  # at most half a step, however many updates there were


@pytest.mark.parametrize("code", CODED)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 2e30])
@pytest.mark.parametrize("buffers", [0, 1])
def test_what_is_not_finite_or_too_large_is_not_coded(code: str, value: float, buffers: int) -> None:
    vector = np.ones(100, np.float32)
    vector[99] = value
    if buffers and np.isfinite(value):
        assert decode(encode(vector, code, buffers), code, 100, buffers)[99] == vector[99]
    else:
        with pytest.raises(UncodableError):
            encode(vector, code, buffers)


def corrupt(code: str, bits: int) -> npt.NDArray[np.uint8]:
    coded = encode(np.ones(100, np.float32), code)
    coded[:2].view(np.uint16)[0] = bits
    return coded


@pytest.mark.parametrize(
    ("code", "bits"),
    [("int8", 0x7FC0), ("int8", 0x7F80), ("int4", 0x7FFF), ("int4", 0xBF80), ("int8", 0x7200), ("fp16", 0x7C00)],
)
def test_steps_that_are_not_finite_negative_or_too_large_are_refused(code: str, bits: int) -> None:
    with pytest.raises(ValueError, match=r"not finite"):
        check(corrupt(code, bits), code, 100)


@pytest.mark.parametrize("code", CODED)
def test_bytes_of_another_number_and_buffers_that_are_not_finite_are_refused(code: str) -> None:
    coded = encode(np.ones(100, np.float32), code, 2)
    for wrong in (coded[:-1], np.append(coded, np.uint8(0)), coded[:0]):
        with pytest.raises(ValueError, match="bytes are not allowed"):
            check(wrong, code, 100, 2)
    coded[-4:] = np.array([np.nan], np.float32).view(np.uint8)
    with pytest.raises(ValueError, match="a buffer is not finite"):
        check(coded, code, 100, 2)
