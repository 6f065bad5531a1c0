"""A task without central test data: clients look for the mean of their numbers, and evaluate on others."""

from typing import Any

import numpy as np

from spyker.tasks.federated_task import ClientInfo, FederatedTask
from spyker.tasks.task import Metric


class Means(FederatedTask):
    """Client k has numbers around ``spread`` × k, and k + 1 numbers for evaluation."""

    metric = Metric("closeness", targets=(0.5,), limits=(0.0, 1.0))

    def __init__(self, spread: float = 0.1) -> None:
        self.spread = spread

    def model(self) -> dict[str, Any]:
        return {"w": np.full(2, 3.0, np.float32)}

    def data(self, client: ClientInfo) -> Any:
        return np.full((4, 2), self.spread * client.number, np.float32)

    def client_test(self, client: ClientInfo) -> Any:
        return np.full((client.number + 1, 2), self.spread * client.number, np.float32)

    def train(self, model: Any, data: Any, *, rate: float, seed: int, training: Any) -> Any:
        return {"w": model["w"] + np.float32(rate) * (data.mean(0) - model["w"])}

    def evaluate(self, model: Any, data: Any) -> float:
        return float(1 / (1 + abs(float((model["w"] - data.mean(0)).mean()))))


class WithTest(Means):
    """The same with central test data: the numbers of the first client."""

    def test(self) -> Any:
        return np.zeros((3, 2), np.float32)
