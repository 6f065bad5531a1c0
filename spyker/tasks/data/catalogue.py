"""The datasets by name."""

from __future__ import annotations

from spyker.tasks.data.cifar10_files import CIFAR10
from spyker.tasks.data.dataset import Dataset
from spyker.tasks.data.mnist_files import MNIST
from spyker.tasks.data.wikitext2_files import WIKITEXT2

DATASETS: dict[str, Dataset] = {dataset.name: dataset for dataset in (MNIST, CIFAR10, WIKITEXT2)}
