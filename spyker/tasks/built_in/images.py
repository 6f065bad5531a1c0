"""What the tasks with pictures in the cache have in common.

The pictures stay where they are, memory-mapped bytes that all processes share; the few hundred of a client become
numbers whenever the client trains, which costs next to nothing beside the training.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from spyker.config.scenario import Training
from spyker.errors import UsageError
from spyker.parameters import parameter
from spyker.tasks.data.dataset import Array
from spyker.tasks.data.load import load
from spyker.tasks.partition import Indices, PartitionOptions, deal
from spyker.tasks.task import Task

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, slots=True)
class ImageOptions(PartitionOptions):
    """The options of ``mnist`` and ``cifar10``."""

    training_images: int | None = parameter(None, "deal out the first so many training images; unset: all", at_least=1)
    test_images: int | None = parameter(None, "evaluate on the first so many test images; unset: on all", at_least=1)
    validation_images: int = parameter(
        0, "keep so many training images from the clients and evaluate on them instead of on test images", at_least=0
    )


def parts(labels: Array, options: PartitionOptions, clients: int, seed: int) -> list[Indices]:
    """Which images each client has."""
    return deal(options, labels, clients, np.random.default_rng((seed, 0xDA7A)))


def make_images(
    dataset: str,
    model: Callable[[], nn.Module],
    mean: tuple[float, ...],
    deviation: tuple[float, ...],
    options: Any,
    clients: int,
    seed: int,
    training: Training,
) -> Task:
    """A task of classifying images; ``mean`` and ``deviation`` of each colour, of 1, are those of the training data."""
    import torch

    from spyker.tasks.torch_task import Examples, LazyDataset, TorchTask

    data = load(dataset)
    # (x / 255 - mean) / deviation, as one multiplication and one addition per pixel.
    factor = torch.tensor([1 / 255 / d for d in deviation]).view(-1, 1, 1)
    offset = torch.tensor([-m / d for m, d in zip(mean, deviation, strict=True)]).view(-1, 1, 1)

    def read(split: str, which: Indices) -> Examples:
        pixels = torch.from_numpy(data[f"{split}-images"][which])
        labels = torch.from_numpy(data[f"{split}-labels"][which].astype(np.int64))
        return pixels.view(len(which), len(mean), *pixels.shape[-2:]).float().mul_(factor).add_(offset), labels

    def later(split: str, which: Indices) -> LazyDataset:
        return LazyDataset(len(which), lambda: read(split, which))

    everybody, kept = data["train-labels"], options.validation_images
    train = [later("train", which) for which in parts(clients_labels(everybody, options), options, clients, seed)]
    count = len(data["test-labels"])
    test = later("test", np.arange(min(options.test_images or count, count)))
    if kept:
        test = later("train", np.arange(len(everybody) - kept, len(everybody)))
    torch.manual_seed(seed)
    return TorchTask(model(), train, test, training, seed=seed)


def clients_labels(labels: Array, options: Any) -> Array:
    """The labels of those training images that clients may have: the first, without those that are kept back."""
    if options.validation_images >= len(labels):
        raise UsageError(
            "task.validation-images",
            f"{options.validation_images:,} is not allowed",
            f"There are {len(labels):,} training images",
        )
    return labels[: len(labels) - options.validation_images][: options.training_images]


def labels_of(dataset: str, options: Any, clients: int, seed: int) -> list[Array]:
    """The labels that each client has."""
    labels = clients_labels(load(dataset)["train-labels"], options)
    return [labels[part] for part in parts(labels, options, clients, seed)]
