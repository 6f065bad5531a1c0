"""Partitioners of Flower Datasets deal out Spyker's data."""

from typing import Any

import numpy as np
import pytest

from spyker.api.read_scenario import read_scenario
from spyker.errors import UsageError
from spyker.tasks.registry import client_labels

pytest.importorskip("flwr_datasets", reason="needs Flower Datasets: pip install 'spyker-fl[flower-datasets]'")


def labels(partitioner: str, **more: Any) -> list[Any]:
    settings = {"task.partitioner": partitioner}
    return client_labels(read_scenario(task="digits", clients=8, settings=settings, **more))


def test_a_name_with_arguments_deals_out_digits() -> None:
    even, uneven = (labels(f"DirichletPartitioner(alpha={alpha})") for alpha in (1000, 0.1))
    assert len(even) == len(uneven) == 8
    spread = [np.mean([np.bincount(part, minlength=10).std() / part.size for part in each]) for each in (even, uneven)]
    assert spread[0] < spread[1] / 2
    assert sum(part.size for part in even) == 1438, "everything is dealt out"


def test_the_seed_decides() -> None:
    once, again, other = (labels("DirichletPartitioner(alpha=0.5)", seed=seed) for seed in (1, 1, 2))
    assert [part.tolist() for part in once] == [part.tolist() for part in again]
    assert [part.tolist() for part in once] != [part.tolist() for part in other]


def test_an_object_deals_out_any_labels() -> None:
    from flwr_datasets.partitioner import PathologicalPartitioner

    from spyker.flower.partitioners import parts

    targets = np.arange(100) % 5
    partitioner = PathologicalPartitioner(
        num_partitions=5,
        partition_by="label",
        num_classes_per_partition=2,
        class_assignment_mode="first-deterministic",  # or some classes would be nobody's
    )
    dealt = parts(partitioner, targets, 5)
    assert all(np.unique(targets[part]).size == 2 for part in dealt)
    assert sorted(np.concatenate(dealt)) == list(range(100))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("DirichletPartitoner(alpha=1)", "Did you mean 'DirichletPartitioner'"),
        ("DirichletPartitioner(alpha=)", r"Write it as DirichletPartitioner\(alpha=0.3\)"),
        ("DirichletPartitioner()", "is not allowed.*alpha"),
        ("IidPartitioner(num_partitions=3)", "IidPartitioner cannot partition|makes 3 partitions for 8 clients"),
    ],
)
def test_what_makes_no_sense_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=f"task.partitioner: .*({complaint})"):
        labels(text)
