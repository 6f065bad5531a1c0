import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spyker.config.sections import ScenarioError
from spyker.learn.partition import iid, pathological


@given(seed=st.integers(0, 2**32), clients=st.integers(1, 40), per_client=st.integers(1, 10))
def test_pathological_parts_are_disjoint_equal_and_have_exactly_l_labels(
    seed: int, clients: int, per_client: int
) -> None:
    random = np.random.default_rng(seed)
    labels = random.permutation(np.repeat(np.arange(10), 100))
    parts = pathological(labels, clients, per_client, random)
    assert len(parts) == clients
    assert len({len(part) for part in parts}) == 1
    everything = np.concatenate(parts)
    assert len(set(everything.tolist())) == everything.size
    for part in parts:
        names, counts = np.unique(labels[part], return_counts=True)
        assert len(names) == per_client
        assert len(set(counts.tolist())) == 1


def test_labels_are_dealt_out_evenly() -> None:
    labels = np.repeat(np.arange(10), 100)
    parts = pathological(labels, 100, 2, np.random.default_rng(1))
    takers = sum(np.isin(np.arange(10), labels[part]).astype(int) for part in parts)
    assert takers.tolist() == [20] * 10


@given(seed=st.integers(0, 2**32), clients=st.integers(1, 50))
def test_iid_parts_are_disjoint_and_equal(seed: int, clients: int) -> None:
    parts = iid(np.zeros(100), clients, np.random.default_rng(seed))
    everything = np.concatenate(parts)
    assert len({len(part) for part in parts}) == 1
    assert len(set(everything.tolist())) == everything.size


def test_more_clients_than_data_are_refused() -> None:
    with pytest.raises(ScenarioError, match=r"fewer clients"):
        iid(np.zeros(10), 11, np.random.default_rng(1))
    with pytest.raises(ScenarioError, match=r"fewer clients"):
        pathological(np.arange(10), 6, 2, np.random.default_rng(1))
    with pytest.raises(ScenarioError, match=r"at most that"):
        pathological(np.arange(10), 1, 11, np.random.default_rng(1))
