"""The arithmetic on weight vectors, against a naive oracle in float64, and who may write where."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spyker.protocol.weights import Weights
from spyker.vectors import BLOCK, accumulate, mix

SIZES = [1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 5]  # around the ends of the blocks the code works in


def vectors(seed, size, count=2, scale=1.0):
    random = np.random.default_rng(seed)
    return [(random.standard_normal(size) * scale).astype(np.float32) for _ in range(count)]


def assert_close(result, oracle, *operands):
    # Each of at most four float32 operations may be wrong by 6e-8 of the largest number that takes part in it.
    bound = 4e-7 * sum(np.abs(np.float64(operand)) for operand in operands) + 1e-37
    assert result.dtype == np.float32
    assert np.all(np.abs(np.float64(result) - oracle) <= bound)


# --- mix: target + weight · (source − target) -------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
@given(seed=st.integers(0, 2**32 - 1), weight=st.floats(0, 1), scale=st.sampled_from([1e-6, 1.0, 1e6]))
@settings(max_examples=25, deadline=None)
def test_mix_is_what_float64_says(size, seed, weight, scale):
    target, source = vectors(seed, size, scale=scale)
    out = np.full(size, np.nan, np.float32)  # an element that was never written shows
    mix(target, source, weight, out)
    oracle = np.float64(target) + weight * (np.float64(source) - np.float64(target))
    assert_close(out, oracle, target, source)


@pytest.mark.parametrize("size", SIZES)
def test_mix_may_write_over_its_target(size):
    target, source = vectors(1, size)
    apart = np.empty_like(target)
    mix(target, source, 0.3, apart)
    mix(target, source, 0.3, target)
    assert np.array_equal(target, apart)


@pytest.mark.parametrize("size", SIZES)
def test_mix_into_another_vector_leaves_both_operands_alone(size):
    target, source = vectors(2, size)
    before = target.copy(), source.copy()
    mix(target, source, 0.3, np.empty_like(target))
    assert np.array_equal(target, before[0])
    assert np.array_equal(source, before[1])


# An element's result depends on that element alone: not on where it stands, nor on how long the vector is.
def test_mix_of_a_long_vector_is_bit_for_bit_the_mix_of_its_parts():
    target, source = vectors(3, 3 * BLOCK + 5)
    whole, part = np.empty_like(target), np.empty(1000, np.float32)
    mix(target, source, 0.37, whole)
    for start in (0, BLOCK - 500, 2 * BLOCK, 3 * BLOCK + 5 - 1000):
        here = slice(start, start + 1000)
        mix(target[here], source[here], 0.37, part)
        assert np.array_equal(part, whole[here])


@pytest.mark.parametrize("size", SIZES)
def test_mix_of_equal_vectors_changes_no_bit(size):
    (target,) = vectors(4, size, count=1)
    out = np.empty_like(target)
    mix(target, target.copy(), 0.6, out)
    assert np.array_equal(out, target)


@pytest.mark.parametrize("size", SIZES)
def test_mix_with_weight_zero_keeps_the_target(size):
    target, source = vectors(5, size)
    out = np.empty_like(target)
    mix(target, source, 0.0, out)
    assert np.array_equal(out, target)


# --- accumulate: total + weight · source ------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
@given(seed=st.integers(0, 2**32 - 1), weight=st.floats(0, 1), scale=st.sampled_from([1e-6, 1.0, 1e6]))
@settings(max_examples=25, deadline=None)
def test_accumulate_is_what_float64_says(size, seed, weight, scale):
    total, source = vectors(seed, size, scale=scale)
    oracle = np.float64(total) + weight * np.float64(source)
    operands = total.copy(), source.copy()
    accumulate(total, source, weight)
    assert_close(total, oracle, *operands)


@pytest.mark.parametrize("size", SIZES)
def test_accumulate_leaves_its_source_alone(size):
    total, source = vectors(6, size)
    before = source.copy()
    accumulate(total, source, 0.7)
    assert np.array_equal(source, before)


@pytest.mark.parametrize("size", SIZES)
def test_accumulate_into_another_vector_gives_the_same_bits_and_leaves_its_operands_alone(size):
    total, source = vectors(8, size)
    before, out = (total.copy(), source.copy()), np.full(size, np.nan, np.float32)
    accumulate(total, source, 0.7, out)
    assert np.array_equal(total, before[0])
    assert np.array_equal(source, before[1])
    accumulate(total, source, 0.7)
    assert np.array_equal(out, total)


@pytest.mark.parametrize("size", SIZES)
def test_accumulated_shares_of_one_vector_add_up_to_it(size):
    source = np.rint(vectors(7, size, count=1, scale=100)[0])
    total = np.zeros_like(source)
    for share in (0.5, 0.25, 0.125, 0.125):  # eighths of whole numbers: no rounding
        accumulate(total, source, share)
    assert np.array_equal(total, source)


# --- Weights: who may write where -------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, BLOCK + 1])
@given(steps=st.lists(st.booleans(), max_size=12))
@settings(deadline=None)
def test_a_snapshot_is_never_written_again(size, steps):
    # True: hand out a snapshot; False: mix. Whatever the order, what was handed out stays as it was.
    weights = Weights(np.ones(size, np.float32))
    handed_out = []
    for turn, look in enumerate(steps):
        if look:
            snapshot = weights.snapshot()
            handed_out.append((snapshot, snapshot.copy()))
        else:
            weights.mix(np.full(size, turn + 2, np.float32), 0.5)
    assert all(np.array_equal(now, then) for now, then in handed_out)


@given(steps=st.lists(st.sampled_from(["look", "mix"]), max_size=12))
@settings(deadline=None)
def test_when_snapshots_are_taken_does_not_change_the_numbers(steps):
    watched, alone = Weights(np.zeros(3, np.float32)), Weights(np.zeros(3, np.float32))
    for turn, step in enumerate(steps):
        if step == "look":
            watched.snapshot()
        else:
            for weights in (watched, alone):
                weights.mix(np.full(3, turn, np.float32), 0.3)
    assert np.array_equal(watched.snapshot(), alone.snapshot())


def test_a_snapshot_cannot_be_written_by_whoever_gets_it():
    weights = Weights(np.zeros(3, np.float32))
    weights.mix(np.ones(3, np.float32), 0.5)
    snapshot = weights.snapshot()
    with pytest.raises(ValueError, match="read-only"):
        snapshot[0] = 1.0


@pytest.mark.parametrize("size", SIZES)
def test_mixes_without_a_snapshot_between_them_write_in_place(size):
    weights = Weights(np.zeros(size, np.float32))
    weights.mix(np.ones(size, np.float32), 0.5)
    memory = weights._vector.ctypes.data  # a snapshot would be a look, and a look is what must not happen here
    for _ in range(3):
        weights.mix(np.ones(size, np.float32), 0.5)
        assert weights._vector.ctypes.data == memory


def test_the_first_mix_after_a_snapshot_writes_elsewhere_and_the_next_in_place_again():
    weights = Weights(np.zeros(8, np.float32))
    weights.mix(np.ones(8, np.float32), 0.5)
    snapshot = weights.snapshot()
    weights.mix(np.ones(8, np.float32), 0.5)
    assert not np.shares_memory(weights._vector, snapshot)
    memory = weights._vector.ctypes.data
    weights.mix(np.ones(8, np.float32), 0.5)
    assert weights._vector.ctypes.data == memory


def test_snapshots_without_a_mix_between_them_are_one_and_the_same():
    # nothing is copied just to be sent
    weights = Weights(np.zeros(8, np.float32))
    weights.mix(np.ones(8, np.float32), 0.5)
    assert weights.snapshot() is weights.snapshot()


def test_the_initial_vector_is_never_written():
    initial = np.zeros(3, np.float32)
    Weights(initial).mix(np.ones(3, np.float32), 0.5)
    assert initial.tolist() == [0, 0, 0]


def test_the_source_of_a_mix_is_never_written():
    source = np.ones(3, np.float32)
    weights = Weights(np.zeros(3, np.float32))
    for _ in range(3):
        weights.mix(source, 0.5)
    assert source.tolist() == [1, 1, 1]


def test_a_vector_that_replaced_the_old_one_is_never_written():
    vector = np.zeros(3, np.float32)
    weights = Weights(np.ones(3, np.float32))
    weights.mix(vector, 0.5)
    weights.replace(vector)
    weights.mix(np.ones(3, np.float32), 0.5)
    assert vector.tolist() == [0, 0, 0]
    assert weights.snapshot().tolist() == [0.5, 0.5, 0.5]


def test_a_snapshot_from_before_a_replacement_stays():
    weights = Weights(np.ones(3, np.float32))
    snapshot = weights.snapshot()
    weights.replace(np.zeros(3, np.float32))
    weights.mix(np.full(3, 9, np.float32), 1.0)
    assert snapshot.tolist() == [1, 1, 1]


def test_a_snapshot_that_somebody_still_holds_keeps_its_values():
    weights = Weights(np.zeros(BLOCK + 1, np.float32))
    other = np.ones(BLOCK + 1, np.float32)
    held = []
    for _ in range(10):
        weights.mix(other, 0.5)
        held.append(weights.snapshot()[1:])  # a view is enough to keep it
    assert [float(view[0]) for view in held] == [1 - 0.5**i for i in range(1, 11)]
    assert all(not view.flags.writeable for view in held)


def test_the_initial_vector_is_never_written_though_nobody_else_holds_it():
    whole = np.zeros(2 * BLOCK + 2, np.float32)
    weights = Weights(whole[: BLOCK + 1])  # a view: its memory belongs to somebody else
    for _ in range(4):
        weights.mix(np.ones(BLOCK + 1, np.float32), 0.5)
        weights.snapshot()
    assert not whole.any()


@pytest.mark.parametrize("change", [lambda w: w.add(np.ones(3, np.float32), 2.0), lambda w: w.scale(3.0)])
def test_sums_too_leave_what_was_handed_out_alone_and_are_otherwise_in_place(change):
    weights = Weights(np.ones(3, np.float32))
    handed_out = weights.snapshot()
    change(weights)
    assert handed_out.tolist() == [1, 1, 1]
    assert weights._vector.tolist() == [3, 3, 3]
    before = weights._vector
    change(weights)
    assert weights._vector is before


# --- Zeros ------------------------------------------------------------------------------------------------------------


def test_zeros_of_one_size_share_memory_until_they_change():
    like = np.ones(8, np.float32)
    one, other = Weights.zeros(like), Weights.zeros(like)
    assert np.shares_memory(one.current, other.current)
    one.add(like, 0.5)
    assert one.current.tolist() == [0.5] * 8
    assert other.current.tolist() == Weights.zeros(like).current.tolist() == [0] * 8


@pytest.mark.parametrize("change", [lambda w: w.add(np.ones(8, np.float32), 1.0), lambda w: w.scale(0.5)])
def test_reading_the_current_vector_costs_no_copy_at_the_next_change(change):
    weights = Weights.zeros(np.ones(8, np.float32))
    weights.add(np.ones(8, np.float32), 1.0)
    before = weights.current
    change(weights)
    assert weights.current is before


# --- Vectors that are computed when they are read ---------------------------------------------------------------------


def test_a_vector_is_computed_when_it_is_read_and_then_once():
    weights, calls = Weights(np.zeros(3, np.float32)), []

    def compute(out):
        calls.append(out)
        out[:] = 7

    weights.replace_later(compute)
    weights.replace(np.ones(3, np.float32))
    assert weights.snapshot().tolist() == [1, 1, 1]
    weights.replace_later(compute)
    assert not calls
    memory = np.empty(3, np.float32)
    weights.copy_to(memory)
    assert memory.tolist() == weights.peek().tolist() == [7, 7, 7]
    assert len(calls) == 2  # neither has stored it
    assert weights.snapshot() is weights.snapshot()
    weights.add(np.ones(3, np.float32), 1.0)
    assert weights.current.tolist() == [8, 8, 8]
    assert len(calls) == 3


def test_only_the_last_numbers_change_and_no_snapshot():
    weights = Weights(np.zeros(4, np.float32))
    snapshot = weights.snapshot()
    weights.add_tail(np.ones(2, np.float32), 0.5)
    assert weights.current.tolist() == [0, 0, 0.5, 0.5]
    assert snapshot.tolist() == [0, 0, 0, 0]
