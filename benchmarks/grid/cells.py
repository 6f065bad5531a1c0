"""The axes of the grid, and a sample of its cells."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from spyker.config.scenario import Scenario, load
from spyker.tasks.registry import resolve

T = TypeVar("T")

DURATION = 8.0  # virtual seconds: about ten rounds of FedAvg and forty of Stride
INTERVAL = 0.5
CLIENTS_PER_REGION = (1, 2, 5, 25)
PARTITIONS = ("iid", "dirichlet", "two labels")
IMAGES = (60, 300, 600)
EPOCHS = (1, 2, 5)
OPTIMISERS = {
    "sgd": (0.005, 0.05, 0.5),
    "momentum": (0.001, 0.01, 0.1),
    "adam": (0.0001, 0.001, 0.01),
    "AdamW": (0.0001, 0.001, 0.01),
}
OWN = "benchmarks.grid.tasks:"
MODELS = {
    "mnist cnn": "mnist",
    "digits": "digits",
    "resnet": f"{OWN}resnet",
    "transformer": f"{OWN}transformer",
    "logistic": f"{OWN}logistic",
    "fixed rate": f"{OWN}fixed_rate",
}
FLOWER = "flower app"  # not part of the sample: it has its own data, optimiser and rate
DIGITS = 1438  # training images of digits
MOST = {
    "mnist cnn": 2_400,
    "digits": 60_000,
    "resnet": 2_400,
    "transformer": 1_200,
    "logistic": 12_000,
    "fixed rate": 12_000,
}
"""Maximum number of training images per round of all clients, which limits the cost of a cell."""
NATIVE_MOST = 30_000  # with the native kernels


@dataclass(frozen=True, slots=True)
class Cell:
    """One configuration."""

    clients: int
    """Clients per region."""
    partition: str
    images: int
    epochs: int
    optimiser: str
    rate: float
    model: str

    @property
    def native(self) -> bool:
        """Whether the native kernels can train the model."""
        return self.model in ("mnist cnn", "digits") and self.optimiser == "sgd"

    @property
    def cost(self) -> int:
        """Images per round."""
        return 4 * self.clients * self.images * self.epochs

    @property
    def possible(self) -> bool:
        """Whether there is enough data, and the cost is within the limit."""
        of_digits = DIGITS * (0.8 if self.partition == "two labels" else 1)
        if self.model == "digits" and 4 * self.clients * self.images > of_digits:
            return False
        return self.cost <= (NATIVE_MOST if self.native else MOST[self.model])

    def scenario(self, algorithm: str, seed: int, duration: float = DURATION) -> Scenario:
        """Return the scenario of an algorithm in this cell."""
        settings: dict[str, object] = {
            "algorithm": algorithm,
            "seed": seed,
            "duration": duration,
            "world.clients": [self.clients] * 4,
            "evaluation.interval": INTERVAL,
        }
        if self.model == FLOWER:
            settings |= {
                "task.name": "flower",
                "task.app": "benchmarks.grid.flower_app:app",
                "task.model": "benchmarks.grid.flower_app:first_model",
                "task.run-config": f"epochs={self.epochs}",
            }
            return resolve(load(None, settings))
        settings |= {
            "task.name": MODELS[self.model],
            "task.images-per-client": self.images,
            "task.partition": "pathological" if self.partition == "two labels" else self.partition,
            "training.epochs": self.epochs,
            "training.optimiser": self.optimiser,
            "training.rate": self.rate,
            "training.kernel": "native" if self.native else "torch",
        }
        if self.partition == "dirichlet":
            settings["task.alpha"] = 0.3
        if self.model == "mnist cnn":
            settings["task.test-images"] = 500
        return resolve(load(None, settings))

    def __str__(self) -> str:
        if self.model == FLOWER:
            return f"{self.model}, {self.clients} per region, {self.epochs} epoch{'s' * (self.epochs > 1)}"
        return (
            f"{self.model}, {self.clients} × {self.images} {self.partition}, {self.optimiser} {self.rate:g}, "
            f"{self.epochs} epoch{'s' * (self.epochs > 1)}"
        )


def sample(count: int, seed: int = 0) -> list[Cell]:
    """Return distinct cells, equally many of each model, with about equally frequent values on the other axes.

    A cell that is not possible is drawn again, so that large ones are rarer.
    """
    random = np.random.default_rng(seed)
    rates = [(name, rate) for name, three in OPTIMISERS.items() for rate in three]
    axes = [decks(axis, random) for axis in (CLIENTS_PER_REGION, PARTITIONS, IMAGES, EPOCHS, rates)]
    cells: dict[Cell, None] = {}
    for model in itertools.cycle(MODELS):
        if len(cells) == count:
            break
        for clients, partition, images, epochs, (optimiser, rate) in zip(*axes, strict=True):
            cell = Cell(clients, partition, images, epochs, optimiser, rate, model)
            if cell.possible and cell not in cells:
                cells[cell] = None
                break
    return list(cells)


def flower_cells() -> list[Cell]:
    """Return the cells of the Flower app, which ignores the server's learning rate."""
    return [Cell(clients, "iid", 0, epochs, "momentum", 0.0, FLOWER) for clients in (1, 2, 5) for epochs in (1, 2, 5)]


def decks(values: Sequence[T], random: np.random.Generator) -> Iterator[T]:
    """Yield all values in random order, repeatedly."""
    while True:
        yield from (values[i] for i in random.permutation(len(values)))
