"""A task from a user: two spirals, a small network, and for each client the points in a sector of the plane.

Run it from this folder:

    spyker compare --task own_task:spirals --set task.turns=1.5 --clients 20 --duration 20 --set training.rate=0.3
"""

import math

import torch
from torch import nn

from spyker import TorchTask, Training

POINTS_PER_CLIENT = 64


def spirals(clients: int, seed: int, training: Training, turns: float = 1.0) -> TorchTask:
    """Return the task. Spyker calls this in each process, with the keys of [task] in the scenario as arguments."""
    torch.manual_seed(seed)

    def points(count: int) -> tuple[torch.Tensor, torch.Tensor]:
        label = torch.arange(count) % 2
        way = torch.rand(count).sqrt()
        angle = 2 * math.pi * turns * way + math.pi * label
        place = way[:, None] * torch.stack([angle.cos(), angle.sin()], 1) + 0.02 * torch.randn(count, 2)
        return place * 3, label

    inputs, labels = points(clients * POINTS_PER_CLIENT)
    by_sector = torch.atan2(inputs[:, 1], inputs[:, 0]).argsort()  # no client has points of the whole plane
    datasets = [(inputs[part], labels[part]) for part in by_sector.split(POINTS_PER_CLIENT)]
    model = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 2))
    return TorchTask(model, datasets, points(1000), training, seed=seed)
