"""``mnist``: MNIST, 28 × 28 handwritten digits, with the CNN of the paper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from spyker.config.scenario import Training
from spyker.tasks.built_in.images import ImageOptions, labels_of, make_images
from spyker.tasks.data.dataset import Array
from spyker.tasks.task import Task

MEAN, DEVIATION = (0.1307,), (0.3081,)  # of the training images


@dataclass(frozen=True, slots=True)
class Options(ImageOptions):
    """The options of ``mnist``."""


def make(options: Any, clients: int, seed: int, training: Training) -> Task:
    """Create the task."""
    from spyker.tasks.built_in.models import mnist_cnn

    return make_images("mnist", mnist_cnn, MEAN, DEVIATION, options, clients, seed, training)


def client_labels(options: Any, clients: int, seed: int) -> list[Array]:
    """Return the labels of each client."""
    return labels_of("mnist", options, clients, seed)
