"""The models of the grid that are not built in, on MNIST images halved to 14 × 14 pixels.

Each function makes a task, as ``task.name = "benchmarks.grid.tasks:resnet"`` in a scenario.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import spyker
from spyker.tasks.data.load import load
from spyker.tasks.partition import Indices, PartitionOptions, deal

TEST_IMAGES = 500
SIDE = 14
MEAN, DEVIATION = 0.1307, 0.28


class Residual(nn.Module):
    """Two convolutions with BatchNorm around a shortcut."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, out, 3, stride, 1, bias=False),
            nn.BatchNorm2d(out),
            nn.ReLU(),
            nn.Conv2d(out, out, 3, 1, 1, bias=False),
            nn.BatchNorm2d(out),
        )
        self.shortcut = nn.Conv2d(channels, out, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


def resnet_model() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, 2, 1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        Residual(8, 8, 1),
        Residual(8, 16, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 10),
    )


class Transformer(nn.Module):
    """A transformer whose tokens are the rows of an image."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.embed = nn.Linear(SIDE, width)
        self.position = nn.Parameter(torch.randn(SIDE, width) * 0.1)
        layer = nn.TransformerEncoderLayer(width, 4, 64, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        tokens: Tensor = self.encoder(self.embed(x.squeeze(1)) + self.position)
        result: Tensor = self.out(tokens.mean(1))
        return result


def logistic_model() -> nn.Module:
    """Return a logistic regression with zero initial weights."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(SIDE * SIDE, 10))
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    return model


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(SIDE * SIDE, 32), nn.ReLU(), nn.Linear(32, 10))


def small_images(split: str, which: Indices) -> tuple[Tensor, Tensor]:
    data = load("mnist")
    pixels = torch.from_numpy(data[f"{split}-images"][which]).float().unsqueeze(1)
    labels = torch.from_numpy(data[f"{split}-labels"][which].astype(np.int64))
    return (nn.functional.avg_pool2d(pixels, 2) / 255 - MEAN) / DEVIATION, labels


def make(
    model: Callable[[], nn.Module],
    clients: int,
    seed: int,
    training: Any,
    options: dict[str, Any],
    kind: type[spyker.TorchTask] = spyker.TorchTask,
) -> spyker.TorchTask:
    labels = np.array(load("mnist")["train-labels"])
    parts = deal(PartitionOptions(**options), labels, clients, np.random.default_rng((seed, 0xDA7A)))
    data = [small_images("train", part) for part in parts]
    torch.manual_seed(seed)
    return kind(model(), data, small_images("test", np.arange(TEST_IMAGES)), training, seed=seed)


def resnet(clients: int, seed: int, training: Any, **options: Any) -> spyker.TorchTask:
    return make(resnet_model, clients, seed, training, options)


def transformer(clients: int, seed: int, training: Any, **options: Any) -> spyker.TorchTask:
    return make(Transformer, clients, seed, training, options)


def logistic(clients: int, seed: int, training: Any, **options: Any) -> spyker.TorchTask:
    return make(logistic_model, clients, seed, training, options)


class FixedRate(spyker.TorchTask):
    """A task that trains with the scenario's rate and ignores the server's."""

    def train(self, client: int, weights: Any, rate: float, step: int, state: Any = None) -> Any:
        return super().train(client, weights, self.training.rate or rate, step, state)


def fixed_rate(clients: int, seed: int, training: Any, **options: Any) -> spyker.TorchTask:
    return make(perceptron, clients, seed, training, options, FixedRate)
