"""The two sides of the benchmark ``copies``, each in its own process.

python -m benchmarks.copies_side run TASK OPTIONS DURATION: prints trainings, evaluations and parameters
python -m benchmarks.copies_side bare TASK OPTIONS TRAININGS EVALUATIONS: the same work in a bare loop
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import nn

import spyker
from spyker.config.scenario import Scenario, Training, load
from spyker.engines.process_settings import keep_memory
from spyker.tasks.registry import resolve, task_spec
from spyker.tasks.torch_task import TorchTask

CLIENTS, EXAMPLES, INPUTS, WORKERS = 4, 32, 64, 2
WORLD: dict[str, Any] = {
    "world.regions": ["Paris", "Sydney"],
    "world.bandwidth-mbit": 1e5,
    "training.rate": 0.001,
    "evaluation.interval": 0.4,
}


def wide(clients: int, seed: int, training: Training, width: int) -> TorchTask:
    """Return fully connected layers with nearly all parameters in one matrix."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(INPUTS, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))
    inputs, targets = torch.randn((clients + 1) * EXAMPLES, INPUTS), torch.arange((clients + 1) * EXAMPLES) % 10
    *data, test = zip(inputs.split(EXAMPLES), targets.split(EXAMPLES), strict=True)
    return TorchTask(model, data, test, training, seed=seed)


class Block(nn.Module):
    """Two convolutions with BatchNorm and a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs))
        self.second = nn.Sequential(nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs))
        self.shortcut = nn.Sequential()
        if inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.second(self.first(x).relu()) + self.shortcut(x)
        return found.relu()


def resnet18(clients: int, seed: int, training: Training, width: int) -> TorchTask:
    """Return ResNet-18 for images of 32 × 32 pixels; with a width of 64 it has 11 million parameters."""
    torch.manual_seed(seed)
    sizes = [width, width, 2 * width, 4 * width, 8 * width]
    blocks = [
        Block(sizes[i] if j == 0 else sizes[i + 1], sizes[i + 1], 2 if i > 0 and j == 0 else 1)
        for i in range(4)
        for j in range(2)
    ]
    stem = (nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
    model = nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8 * width, 10))
    inputs, targets = torch.randn((clients + 1) * EXAMPLES, 3, 32, 32), torch.arange((clients + 1) * EXAMPLES) % 10
    *data, test = zip(inputs.split(EXAMPLES), targets.split(EXAMPLES), strict=True)
    return TorchTask(model, data, test, training, seed=seed)


def scenario_of(task: str, options: dict[str, Any], duration: float) -> Scenario:
    chosen = {"duration": duration} | WORLD | {f"task.{key}": value for key, value in options.items()}
    return resolve(load(None, chosen, task=task, clients=CLIENTS))


def run(task: str, options: dict[str, Any], duration: float) -> None:
    """Run Spyker with a record."""
    with tempfile.TemporaryDirectory() as folder:
        scenario = scenario_of(task, options, duration)
        done = spyker.run(scenario, workers=WORKERS, progress=False, out=Path(folder, "run"))
        evaluations = len(done.curve) * (len(WORLD["world.regions"]) + 1)
        print(done.summary["updates"], evaluations, done.summary["parameters"])


def bare(task: str, options: dict[str, Any], trainings: int, evaluations: int) -> None:
    """Train the same model and data in plain PyTorch on one thread."""
    torch.set_num_threads(1)
    keep_memory()  # as the engine does
    scenario = scenario_of(task, options, 1.0)
    made = task_spec(scenario).make()
    assert isinstance(made, TorchTask)
    model, datasets, test = made.model, [made.clients[k].read() for k in range(CLIENTS)], made.test.read()  # type: ignore[attr-defined]
    del made
    for parameter in model.parameters():
        parameter.grad = None
    initial = {name: value.clone() for name, value in model.state_dict().items()}
    for i in range(trainings):
        inputs, targets = datasets[i % CLIENTS]
        model.load_state_dict(initial)
        model.train()
        optimiser = torch.optim.SGD(model.parameters(), lr=scenario.training.rate)
        for batch in torch.randperm(len(targets)).split(scenario.training.batch_size):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(inputs[batch]), targets[batch]).backward()
            optimiser.step()
    with torch.no_grad():
        for _ in range(evaluations):
            model.load_state_dict(initial)
            model.eval()
            inputs, targets = test
            float((model(inputs).argmax(1) == targets).float().mean())


if __name__ == "__main__":
    side, task, options, *numbers = sys.argv[1:]
    if side == "run":
        run(task, json.loads(options), float(numbers[0]))
    else:
        bare(task, json.loads(options), *map(int, numbers))
