"""The pool of vectors in shared memory."""

import numpy as np

from spyker.engines.shared_vectors import PAGE, SharedVectors


def test_a_vector_is_free_again_when_nothing_refers_to_it() -> None:
    vectors = SharedVectors(5, 1)
    number, vector = vectors.take()
    vector[:] = 1
    part = vector[1:3]
    assert vectors.number_of(vector) == number
    del vector
    assert vectors._free == []  # a view needs the memory as well
    assert part.tolist() == [1, 1]
    del part
    assert vectors.take()[0] == number


def test_vectors_do_not_overlap_and_begin_at_pages() -> None:
    vectors = SharedVectors(PAGE, 3)
    taken = [vectors.take()[1] for _ in range(3)]
    for i, vector in enumerate(taken):
        vector[:] = i
    assert [set(vector.tolist()) for vector in taken] == [{0}, {1}, {2}]
    assert {vector.ctypes.data % PAGE for vector in taken} == {0}


def test_too_many_kept_vectors_are_copied() -> None:
    vectors = SharedVectors(2, 2, spare=1)
    first, second = vectors.take(), vectors.take()
    kept = vectors.keep(*first)
    copied = vectors.keep(*second)
    assert kept is first[1]
    assert not np.shares_memory(copied, second[1])
    assert vectors.spare() is None
    del first, kept
    spare = vectors.spare()
    assert spare is not None
    assert vectors.number_of(np.zeros(2, np.float32)) is None


def test_what_is_written_to_a_private_vector_reaches_nobody_else() -> None:
    vectors = SharedVectors(PAGE, 3)
    first, (number, vector) = vectors.take()[1], vectors.take()
    vector[:] = 1
    private = vectors.private(number)
    assert private.tolist() == vector.tolist()
    private[:] = 2
    assert set(vector.tolist()) == {1}
    assert vectors.private(number).tolist() == vector.tolist()
    assert not first.any()
