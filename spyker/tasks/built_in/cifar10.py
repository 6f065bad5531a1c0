"""``cifar10``: CIFAR-10, 32 × 32 photographs of ten classes, with a small CNN."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from spyker.config.scenario import Training
from spyker.parameters import parameter
from spyker.tasks.built_in.images import ImageOptions, labels_of, make_images
from spyker.tasks.data.dataset import Array
from spyker.tasks.task import Task

MEAN, DEVIATION = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)  # of the training images


@dataclass(frozen=True, slots=True)
class Options(ImageOptions):
    """The options of ``cifar10``."""

    batch_norm: bool | None = parameter(None, "true: add BatchNorm after each convolution of the model")


def make(options: Any, clients: int, seed: int, training: Training) -> Task:
    """Create the task."""
    from spyker.tasks.built_in.models import cifar10_cnn

    model = partial(cifar10_cnn, batch_norm=bool(options.batch_norm))
    return make_images("cifar10", model, MEAN, DEVIATION, options, clients, seed, training)


def client_labels(options: Any, clients: int, seed: int) -> list[Array]:
    """Return the labels of each client."""
    return labels_of("cifar10", options, clients, seed)
