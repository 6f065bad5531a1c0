"""``digits``: 1,797 handwritten digits of 8 × 8 pixels that come with scikit-learn, and a small CNN.

It needs no download. A fifth of the images, the same for every seed, is kept for evaluation.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from spyker.config.scenario import Training
from spyker.tasks.built_in.images import parts
from spyker.tasks.data.dataset import Array
from spyker.tasks.partition import PartitionOptions
from spyker.tasks.task import Task


@dataclass(frozen=True, slots=True)
class Options(PartitionOptions):
    """The options of ``digits``."""


def make(options: Any, clients: int, seed: int, training: Training) -> Task:
    """The task for so many clients."""
    import torch

    from spyker.tasks.built_in.models import digits_cnn
    from spyker.tasks.torch_task import TorchTask

    all_images, all_labels, held_out = read()
    images = torch.from_numpy(all_images / 16).float().unsqueeze(1)
    labels = torch.from_numpy(all_labels).long()
    images, test_images = images[held_out:], images[:held_out]
    labels, test_labels = labels[held_out:], labels[:held_out]
    datasets = [(images[i], labels[i]) for i in parts(labels.numpy(), options, clients, seed)]
    torch.manual_seed(seed)
    return TorchTask(digits_cnn(), datasets, (test_images, test_labels), training, seed=seed)


def client_labels(options: Any, clients: int, seed: int) -> list[Array]:
    """The labels that each client has."""
    _, labels, held_out = read()
    labels = labels[held_out:]
    return [labels[part] for part in parts(labels, options, clients, seed)]


def read() -> tuple[Array, Array, int]:
    """Images and labels in a fixed order, and how many at their beginning are for evaluation."""
    images, labels = stored()
    order = np.random.default_rng(0).permutation(len(labels))
    return images[order], labels[order], len(order) // 5


def stored() -> tuple[Array, Array]:
    """What ``load_digits`` returns, read from the same file: to import scikit-learn takes longer than a short run."""
    package = find_spec("sklearn")
    folders = (package.submodule_search_locations if package else None) or ()
    for file in (Path(folder, "datasets", "data", "digits.csv.gz") for folder in folders):
        if file.is_file():
            table = np.loadtxt(file, delimiter=",")
            return table[:, :-1].reshape(-1, 8, 8), table[:, -1].astype(int)

    from sklearn.datasets import load_digits  # of a version that keeps it elsewhere

    data = load_digits()
    return data.images, data.target
