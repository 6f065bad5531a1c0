"""All datasets by name."""

from __future__ import annotations

from spyker.learn.data.cifar10_files import CIFAR10
from spyker.learn.data.dataset import Dataset
from spyker.learn.data.mnist_files import MNIST
from spyker.learn.data.wikitext2_files import WIKITEXT2

DATASETS: dict[str, Dataset] = {dataset.name: dataset for dataset in (MNIST, CIFAR10, WIKITEXT2)}
