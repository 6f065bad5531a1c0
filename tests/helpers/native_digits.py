"""The models of the two Flower examples as Spyker's own tasks, without anything of Flower's. The examples must be where
modules are found.
"""

import random
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from spyker.tasks.layout import Layout
from spyker.tasks.task import Task, TrainingResult
from spyker.vectors import Vector


def seed_all(*numbers: int) -> None:
    seed = int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0])
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    torch.manual_seed(seed)


class Native(Task):
    """Functions of arrays as a task."""

    def __init__(
        self,
        seed: int,
        first: Mapping[str, Any],
        train: Callable[[int, dict[str, Any], float], tuple[Mapping[str, Any], int, dict[str, float]]],
        judge: Callable[[dict[str, Any]], float],
    ) -> None:
        self.seed, self.first, self.learn, self.judge = seed, dict(first), train, judge
        self.layout = Layout(tuple(first), tuple(array.shape for array in first.values()))

    def parts(self, weights: Vector) -> dict[str, Any]:
        return {name: part.astype(self.first[name].dtype) for name, part in self.layout.parts(weights).items()}

    def vector(self, parts: Mapping[str, Any]) -> Vector:
        return self.layout.vector({name: np.asarray(part, np.float32) for name, part in parts.items()})

    def initial(self) -> Vector:
        return self.vector(self.first)

    def size(self, client: int) -> int:
        return 1

    def train(self, client: int, weights: Vector, rate: float, step: int) -> TrainingResult:
        seed_all(self.seed, client, step)
        parts, examples, metrics = self.learn(client, self.parts(weights), rate)
        return TrainingResult(self.vector(parts), examples, metrics)

    def evaluate(self, weights: Vector) -> float:
        return self.judge(self.parts(weights))


def pytorch(clients: int, seed: int, training: object) -> Task:
    from digits_pytorch.task import Net, load_data, load_test_data, test, train

    def numbers(net: Any) -> dict[str, Any]:
        return {name: tensor.numpy() for name, tensor in net.state_dict().items()}

    def loaded(parts: dict[str, Any]) -> Any:
        net = Net()
        net.load_state_dict({name: torch.from_numpy(part) for name, part in parts.items()})
        return net

    def learn(client: int, parts: dict[str, Any], rate: float) -> tuple[dict[str, Any], int, dict[str, float]]:
        net, (loader, _) = loaded(parts), load_data(client, clients, 16)
        loss = train(net, loader, 1, rate)
        return numbers(net), len(loader.dataset), {"train_loss": loss}

    seed_all(seed)
    return Native(seed, numbers(Net()), learn, lambda parts: test(loaded(parts), load_test_data())[1])


def sklearn(clients: int, seed: int, training: object) -> Task:
    from digits_sklearn.task import create_model, load_data

    def loaded(parts: dict[str, Any], rate: float = 1.0) -> Any:
        model = create_model(rate)
        model.coef_, model.intercept_ = parts["0"], parts["1"]
        return model

    def learn(client: int, parts: dict[str, Any], rate: float) -> tuple[dict[str, Any], int, dict[str, float]]:
        model, (inputs, labels, _, _) = loaded(parts, rate), load_data(client, clients)
        model.partial_fit(inputs, labels)
        return {"0": model.coef_, "1": model.intercept_}, len(labels), {"train_accuracy": model.score(inputs, labels)}

    def judge(parts: dict[str, Any]) -> float:
        model, kept = loaded(parts), [load_data(k, clients)[2:] for k in range(clients)]
        share = np.array([float(len(labels)) for _, labels in kept])
        share /= share.sum()
        return float(share @ [model.score(*each) for each in kept])

    model = create_model(1.0)
    return Native(seed, {"0": model.coef_, "1": model.intercept_}, learn, judge)
