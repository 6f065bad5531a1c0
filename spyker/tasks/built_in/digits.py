"""``digits``: the 1,797 handwritten digits of 8 × 8 pixels in scikit-learn, with a small CNN.

The task needs no download. A fifth of the images, the same for every seed, is the test data.
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
    """Create the task."""
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
    """Return the labels of each client."""
    _, labels, held_out = read()
    labels = labels[held_out:]
    return [labels[part] for part in parts(labels, options, clients, seed)]


def read() -> tuple[Array, Array, int]:
    """Return images and labels in a fixed order, and the number of test images, which come first."""
    images, labels = stored()
    order = np.random.default_rng(0).permutation(len(labels))
    return images[order], labels[order], len(order) // 5


def stored() -> tuple[Array, Array]:
    """Return the data of ``load_digits``, read from its file: importing scikit-learn takes longer than a short run."""
    package = find_spec("sklearn")
    folders = (package.submodule_search_locations if package else None) or ()
    for file in (Path(folder, "datasets", "data", "digits.csv.gz") for folder in folders):
        if file.is_file():
            table = np.loadtxt(file, delimiter=",")
            return table[:, :-1].reshape(-1, 8, 8), table[:, -1].astype(int)

    from sklearn.datasets import load_digits  # a version that stores the file elsewhere

    data = load_digits()
    return data.images, data.target
