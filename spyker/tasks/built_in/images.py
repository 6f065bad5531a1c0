"""Image classification tasks with datasets from the cache.

Images stay memory-mapped bytes that all processes share. A client's images are converted to floats whenever the client
trains, which takes little time compared with the training.
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

    training_images: int | None = parameter(
        None, "number of training images to partition, from the first; unset: all", at_least=1
    )
    test_images: int | None = parameter(
        None, "number of test images to evaluate on, from the first; unset: all", at_least=1
    )
    validation_images: int = parameter(
        0, "number of training images to hold out and evaluate on, instead of on test images", at_least=0
    )


def parts(labels: Array, options: PartitionOptions, clients: int, seed: int) -> list[Indices]:
    """Return the indices of each client's images."""
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
    """Create an image classification task.

    Args:
        dataset: name of the dataset.
        model: function that returns a new model.
        mean: mean of each channel of the training images, whose pixels are scaled to 0 to 1.
        deviation: standard deviation of each channel.
        options: options of the task, an ``ImageOptions``.
        clients: number of clients.
        seed: seed of the partition, the initial weights and the training.
        training: settings of ``[training]``.

    """
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

    def lazy(split: str, which: Indices) -> LazyDataset:
        return LazyDataset(len(which), lambda: read(split, which))

    labels, held_out = data["train-labels"], options.validation_images
    train = [lazy("train", which) for which in parts(training_labels(labels, options), options, clients, seed)]
    count = len(data["test-labels"])
    test = lazy("test", np.arange(min(options.test_images or count, count)))
    if held_out:
        test = lazy("train", np.arange(len(labels) - held_out, len(labels)))
    torch.manual_seed(seed)
    return TorchTask(model(), train, test, training, seed=seed)


def training_labels(labels: Array, options: Any) -> Array:
    """Return the labels of the training images to partition, without held-out images."""
    if options.validation_images >= len(labels):
        raise UsageError(
            "task.validation-images",
            f"{options.validation_images:,} is not allowed: there are {len(labels):,} training images",
            f"Give at most {len(labels) - 1:,}",
        )
    return labels[: len(labels) - options.validation_images][: options.training_images]


def labels_of(dataset: str, options: Any, clients: int, seed: int) -> list[Array]:
    """Return the labels of each client."""
    labels = training_labels(load(dataset)["train-labels"], options)
    return [labels[part] for part in parts(labels, options, clients, seed)]
