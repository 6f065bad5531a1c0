import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spyker.config.sections import read
from spyker.errors import UsageError
from spyker.tasks.partition import (
    PARTITIONS,
    Indices,
    PartitionOptions,
    contiguous,
    deal,
    dirichlet,
    iid,
    pathological,
    shard,
)

seeds = st.integers(0, 2**32)


def check_disjoint(parts: list[Indices], clients: int) -> None:
    everything = np.concatenate(parts)
    assert len(parts) == clients
    assert len(set(everything.tolist())) == everything.size


def check_equal(parts: list[Indices], size: int | None = None) -> None:
    sizes = {len(part) for part in parts}
    assert len(sizes) == 1
    assert size is None or sizes == {size}


@given(seed=seeds, clients=st.integers(1, 40), per_client=st.integers(1, 10))
def test_pathological_parts_are_disjoint_equal_and_have_exactly_l_labels(
    seed: int, clients: int, per_client: int
) -> None:
    random = np.random.default_rng(seed)
    labels = random.permutation(np.repeat(np.arange(10), 100))
    parts = pathological(labels, clients, per_client, random)
    check_disjoint(parts, clients)
    check_equal(parts)
    for part in parts:
        names, counts = np.unique(labels[part], return_counts=True)
        assert len(names) == per_client
        assert len(set(counts.tolist())) == 1


def test_grouped_clients_have_the_labels_of_their_neighbours() -> None:
    labels = np.repeat(np.arange(10), 100)
    plain, grouped = (pathological(labels, 40, 2, np.random.default_rng(1), grouped=wanted) for wanted in (False, True))
    check_disjoint(grouped, 40)
    check_equal(grouped)

    def hands(parts: list[Indices]) -> list[tuple[int, ...]]:
        return [tuple(np.unique(labels[part]).tolist()) for part in parts]

    assert hands(grouped) == sorted(hands(plain))  # the same hands, handed out in another order
    regions = [{label for hand in hands(grouped)[i : i + 10] for label in hand} for i in range(0, 40, 10)]
    assert min(map(len, regions)) < 10


def test_labels_are_dealt_out_evenly() -> None:
    labels = np.repeat(np.arange(10), 100)
    parts = pathological(labels, 100, 2, np.random.default_rng(1))
    takers = sum(np.isin(np.arange(10), labels[part]).astype(int) for part in parts)
    assert takers.tolist() == [20] * 10


@given(seed=seeds, clients=st.integers(1, 50))
def test_iid_parts_are_disjoint_and_equal(seed: int, clients: int) -> None:
    parts = iid(np.zeros(100), clients, np.random.default_rng(seed))
    check_disjoint(parts, clients)
    check_equal(parts, 100 // clients)


@given(seed=seeds, clients=st.integers(1, 40), shards=st.integers(1, 5))
def test_shards_are_disjoint_equal_and_of_few_labels(seed: int, clients: int, shards: int) -> None:
    random = np.random.default_rng(seed)
    labels = random.permutation(np.repeat(np.arange(10), 100))
    parts = shard(labels, clients, shards, random)
    check_disjoint(parts, clients)
    check_equal(parts, 1000 // (clients * shards) * shards)
    if clients * shards >= 10:  # then a shard is no longer than a label has data points, and lies in at most two
        assert all(len(np.unique(labels[part])) <= 2 * shards for part in parts)


def test_shards_that_divide_the_labels_have_one_label_each() -> None:
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 100))
    parts = shard(labels, 50, 2, np.random.default_rng(0))
    assert all(len(np.unique(labels[part])) <= 2 for part in parts)
    assert sum(len(part) for part in parts) == 1000


@given(seed=seeds, clients=st.integers(1, 60), alpha=st.floats(0.001, 1000))
def test_dirichlet_deals_out_everything_and_leaves_nobody_empty_handed(seed: int, clients: int, alpha: float) -> None:
    random = np.random.default_rng(seed)
    labels = random.permutation(np.repeat(np.arange(5), 12))
    parts = dirichlet(labels, clients, alpha, random)
    check_disjoint(parts, clients)
    assert sum(len(part) for part in parts) == 60
    assert all(len(part) for part in parts)


def test_a_small_alpha_is_uneven_and_a_large_one_is_not() -> None:
    labels = np.repeat(np.arange(10), 1000)

    def labels_of_half(alpha: float) -> float:
        """How many labels, on average, make up half of a client's data."""
        parts = dirichlet(labels, 20, alpha, np.random.default_rng(3))
        counts = [np.sort(np.bincount(labels[part], minlength=10))[::-1].cumsum() for part in parts]
        return float(np.mean([np.searchsorted(c, c[-1] / 2) + 1 for c in counts]))

    assert labels_of_half(0.05) < 2 < labels_of_half(1) < 4 < labels_of_half(1000)


@pytest.mark.parametrize("kind", PARTITIONS)
def test_the_seed_decides_and_fewer_images_can_be_asked_for(kind: str) -> None:
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 100))
    options = PartitionOptions(partition=kind, images_per_client=8)
    one, same, other = (deal(options, labels, 20, np.random.default_rng(seed)) for seed in (1, 1, 2))
    check_disjoint(one, 20)
    if kind == "dirichlet":
        assert sum(map(len, one)) == 160
    else:
        check_equal(one, 8)
    assert all(np.array_equal(a, b) for a, b in zip(one, same, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
    seen = np.unique(labels[np.concatenate(one)])
    assert len(seen) == 10  # fewer images are not fewer labels


@pytest.mark.parametrize("kind", PARTITIONS)
def test_what_does_not_go_round_is_refused(kind: str) -> None:
    labels, random = np.repeat(np.arange(10), 10), np.random.default_rng(0)
    for wrong, message in (
        (12, "task.images-per-client: 12 is not allowed with 10 clients. Give at most 10"),
        (7, "multiple"),
    ):
        if wrong == 12 or kind in ("pathological", "shard"):
            with pytest.raises(UsageError, match=message):
                deal(PartitionOptions(partition=kind, images_per_client=wrong), labels, 10, random)
    with pytest.raises(UsageError, match="fewer clients"):
        deal(PartitionOptions(partition=kind), labels, 101, random)


def test_more_clients_than_data_are_refused() -> None:
    with pytest.raises(UsageError, match=r"fewer clients"):
        iid(np.zeros(10), 11, np.random.default_rng(1))
    with pytest.raises(UsageError, match=r"fewer clients"):
        pathological(np.arange(10), 6, 2, np.random.default_rng(1))
    with pytest.raises(UsageError, match=r"number of labels in the data"):
        pathological(np.arange(10), 1, 11, np.random.default_rng(1))


def test_options_out_of_range_are_refused() -> None:
    for options, message in (
        ({"partition": "drichlet"}, "Did you mean 'dirichlet'"),
        ({"partition": "xyz"}, "Choose one of: pathological, iid, dirichlet, shard"),
        ({"alpha": 0}, "at least 0.001"),
        ({"shards-per-client": 0}, "at least 1"),
        ({"images-per-client": 0}, "at least 1"),
    ):
        with pytest.raises(UsageError, match=message):
            read(PartitionOptions, options, "task")


def test_text_is_cut_into_equal_parts() -> None:
    assert contiguous(103, 10) == 10
    assert contiguous(103, 10, each=4) == 10
    with pytest.raises(UsageError, match=r"11 is not allowed: there are 103 for 10 clients. Give at most 10"):
        contiguous(103, 10, each=11)
    with pytest.raises(UsageError, match="fewer clients"):
        contiguous(9, 10)
