"""The task of Spyker's clients and servers: logistic regression, see ``digits.py``."""

from __future__ import annotations

from typing import Any

import spyker
from chaos.goodput import digits
from spyker.config.scenario import Training
from spyker.tasks.federated_task import ClientInfo


class Digits(spyker.FederatedTask):
    """Logistic regression on the digits in a file."""

    def __init__(self, data: str) -> None:
        self.path = data

    def model(self) -> digits.Model:
        """The initial model."""
        return digits.initial()

    def data(self, client: ClientInfo) -> Any:
        """The images of a client."""
        return Images(*digits.read(self.path, client.number))

    def test(self) -> Any:
        """The images that servers evaluate with."""
        return Images(*digits.read(self.path, "test"))

    def train(self, model: digits.Model, data: Any, *, rate: float, seed: int, training: Training) -> digits.Model:
        """A few gradient steps."""
        return digits.train(model, data.images, data.labels, rate)

    def evaluate(self, model: digits.Model, data: Any) -> float:
        """The accuracy."""
        return digits.accuracy(model, data.images, data.labels)


class Images:
    """Images and their labels; its length is their number."""

    def __init__(self, images: Any, labels: Any) -> None:
        self.images, self.labels = images, labels

    def __len__(self) -> int:
        return len(self.labels)
