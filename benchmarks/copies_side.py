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
