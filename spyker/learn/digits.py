"""``digits``: 1,797 handwritten digits of 8 × 8 pixels that come with scikit-learn, and a small CNN.

It needs no download. A fifth of the images, the same for every seed, is kept for evaluation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from spyker.config.scenario import Training
from spyker.learn import partition
from spyker.learn.task import Task
from spyker.protocol.parameters import parameter


@dataclass(frozen=True, slots=True)
class Options:
    """The options of ``digits``."""

    partition: str = parameter(
        "pathological", "who gets which images: pathological or iid", choices=("pathological", "iid")
    )
    labels_per_client: int = parameter(2, "l: how many labels a client has, when pathological", at_least=1)


def make(options: Any, clients: int, seed: int, training: Training) -> Task:
    """The task for so many clients."""
    import torch
    from sklearn.datasets import load_digits
    from torch import nn

    from spyker.learn.torch_task import TorchTask

    data = load_digits()
    order = np.random.default_rng(0).permutation(len(data.target))
    images = torch.from_numpy(data.images[order] / 16).float().unsqueeze(1)
    labels = torch.from_numpy(data.target[order]).long()
    held_out = len(labels) // 5
    images, test_images = images[held_out:], images[:held_out]
    labels, test_labels = labels[held_out:], labels[:held_out]

    random = np.random.default_rng((seed, 0xDA7A))
    if options.partition == "iid":
        parts = partition.iid(labels, clients, random)
    else:
        parts = partition.pathological(labels, clients, options.labels_per_client, random)

    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(128, 10),
    )
    return TorchTask(model, [(images[i], labels[i]) for i in parts], (test_images, test_labels), training, seed=seed)
