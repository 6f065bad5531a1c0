"""Fixed-point numbers modulo 2³²: what is encoded comes back, and sums are exact."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spyker.privacy.fixed_point import HIGHEST_SCALE, LARGEST_SUM, LOWEST_SCALE, accumulate, decode, encode, scale_for
from spyker.vectors import BLOCK

FLOATS = st.floats(-1000, 1000, width=32)


@given(st.lists(FLOATS, min_size=1, max_size=9), st.floats(0.01, 1), st.integers(0, 20))
def test_a_number_comes_back_with_an_error_of_at_most_half_a_unit(numbers, factor, scale):
    vector = np.array(numbers, np.float32)
    back = decode(encode(vector, factor, scale), 1.0, scale)
    exact = vector.astype(np.float64) * factor
    assert np.all(np.abs(back - exact) <= 0.5 * 2.0**-scale + 1e-6 * np.abs(exact))


@given(st.floats(1e-30, 1e30), st.integers(1, 1 << 24))
def test_a_scale_is_the_largest_with_which_so_many_bounds_fit(bound, terms):
    scale = scale_for(bound, terms)
    assert LOWEST_SCALE <= scale <= HIGHEST_SCALE
    if scale > LOWEST_SCALE:
        assert terms * math.ldexp(bound, scale) <= LARGEST_SUM * 1.000001
    if scale < HIGHEST_SCALE:
        assert terms * math.ldexp(bound, scale + 1) > LARGEST_SUM * 0.999999


@pytest.mark.parametrize("bound", [0.0, -1.0, math.inf, math.nan])
def test_a_bound_that_is_none_has_a_scale(bound):
    assert scale_for(bound, 4) == 0


def test_what_is_too_large_is_limited_to_the_range_with_its_sign():
    coded = encode(np.array([1e30, -1e30, 1.0], np.float32), 1.0, 20)
    assert decode(coded, 1.0, 0).tolist() == [LARGEST_SUM, -LARGEST_SUM, 1 << 20]


def test_sums_with_multiples_are_exact_in_any_order_and_across_blocks():
    random = np.random.default_rng(1)
    vectors = random.integers(-1000, 1000, (5, BLOCK + 3)).astype(np.float32)
    times = [1, 16, 3, 1, 7]
    forwards, backwards = np.zeros(BLOCK + 3, np.uint32), np.zeros(BLOCK + 3, np.uint32)
    for i in range(5):
        accumulate(forwards, encode(vectors[i], 1.0, 4), times[i])
        accumulate(backwards, encode(vectors[4 - i], 1.0, 4), times[4 - i])
    assert np.array_equal(forwards, backwards)
    exact = sum(t * v.astype(np.float64) for t, v in zip(times, vectors, strict=True))
    assert np.array_equal(decode(forwards, 1.0, 4), exact.astype(np.float32))


def test_sums_wrap_around_so_that_masks_cancel():
    mask = np.array([0, 1, 0xFFFFFFFF, 0x80000000], np.uint32)
    total = encode(np.full(4, -3.0, np.float32), 1.0, 8)
    np.add(total, mask, out=total)
    np.subtract(total, mask, out=total)
    assert decode(total, 1.0, 8).tolist() == [-3.0] * 4
