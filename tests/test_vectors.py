"""Arithmetic in blocks gives what it would give in one piece, to the bit."""

import math

import numpy as np
import pytest

from spyker.vectors import BLOCK, accumulate, average, difference, distance, dot, is_finite, length, mix, scaled_sum


@pytest.mark.parametrize("size", [1, BLOCK, BLOCK + 1, 3 * BLOCK + 8_192 + 5])
def test_blocks_change_no_bit_of_a_norm(size: int) -> None:
    vector = np.random.default_rng(size).standard_normal(size).astype(np.float32)
    assert length(vector) == math.sqrt(float(np.square(vector).sum(dtype=np.float64)))


@pytest.mark.parametrize("size", [1, BLOCK, BLOCK + 1, 3 * BLOCK + 5])
@pytest.mark.parametrize("in_place", [False, True])
def test_blocks_change_no_bit_of_a_mix(size: int, in_place: bool) -> None:
    """Records depend on it: difference, product and sum are rounded to float32 one by one."""
    target, source = np.random.default_rng(size).standard_normal((2, size)).astype(np.float32)
    expected = target + np.float32(0.37) * (source - target)
    out = target if in_place else np.empty_like(target)
    mix(target, source, 0.37, out)
    assert np.array_equal(out, expected)


@pytest.mark.parametrize("size", [1, BLOCK, BLOCK + 1, 3 * BLOCK + 5])
def test_a_distance_from_zero_is_that_from_a_vector_of_zeros(size: int) -> None:
    vector, other = np.random.default_rng(size).standard_normal((2, size)).astype(np.float32)
    zeros = np.zeros(size, np.float32)
    assert distance(vector, None) == distance(vector, zeros) == distance(zeros, vector)
    assert distance(vector, None) == pytest.approx(length(vector), rel=1e-5)
    assert distance(vector, other) == pytest.approx(length(vector - other), rel=1e-5)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("size", [10, 100, BLOCK + 1])
def test_long_vectors_are_finite_and_infinitely_far(size: int) -> None:
    """The sum of their squares overflows float32."""
    vector = np.full(size, 3e38, np.float32)
    assert is_finite(vector)
    assert distance(vector, None) == distance(vector, -vector) == math.inf
    vector[-1] = np.nan
    assert not is_finite(vector)


@pytest.mark.parametrize("place", [0, BLOCK, 2 * BLOCK + 2])
def test_a_number_that_is_not_finite_is_found_in_every_block(place: int) -> None:
    vector = np.zeros(2 * BLOCK + 3, np.float32)
    assert is_finite(vector)
    vector[place] = np.inf
    assert not is_finite(vector)


def test_an_average_has_no_negative_zeros() -> None:
    mean = average([np.full(2, -0.0, np.float32)] * 2)
    assert not np.signbit(mean).any()


@pytest.mark.parametrize("size", [1, BLOCK, BLOCK + 1, 3 * BLOCK + 5])
def test_a_lazy_vector_has_the_bits_of_a_computed_one(size: int) -> None:
    a, b, total = np.random.default_rng(size).standard_normal((3, size)).astype(np.float32)
    pairs = [(difference(a, b), a - b), (scaled_sum(a, 2.5, b, 0.3), a * np.float32(2.5) + b * np.float32(0.3))]
    for lazy, computed in pairs:
        assert length(lazy) == length(computed)
        assert dot(lazy, total) == dot(computed, total)
        expected, out = total.copy(), np.empty_like(total)
        accumulate(expected, computed, 0.7)
        accumulate(total, lazy, 0.7, out)
        assert np.array_equal(out, expected)
