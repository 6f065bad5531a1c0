"""A task that measures more than one thing, whose clients report their loss, and which can be made to fail."""

import torch
from torch import nn

from spyker.config.scenario import Training
from spyker.tasks.task import Metric
from spyker.tasks.torch_task import ExtraMetric, TorchTask, accuracy


def losses(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(outputs, targets, reduction="none")


def make(clients: int, seed: int, training: Training, broken: int = -1) -> TorchTask:
    """The data of client ``broken`` has a NaN in it."""
    torch.manual_seed(seed)

    def points(count: int) -> tuple[torch.Tensor, torch.Tensor]:
        label = torch.arange(count) % 2
        return torch.randn(count, 2) + 2.0 * label[:, None], label

    datasets = [points(12) for _ in range(clients)]
    if broken >= 0:
        datasets[broken][0][5, 1] = float("nan")
    return TorchTask(
        nn.Linear(2, 2),
        datasets,
        points(50),
        training,
        seed=seed,
        score=losses,
        metric=Metric("loss", higher_is_better=False, targets=(0.45,)),
        also=[ExtraMetric(Metric("accuracy"), accuracy)],
        client_tests=[points(6) for _ in range(clients)],
    )


def line(clients: int, seed: int, training: Training) -> TorchTask:
    """A line to be fitted, which no rate above 1 does."""
    torch.manual_seed(seed)
    inputs = torch.randn(12, 2)
    data = inputs, inputs.sum(1, keepdim=True)
    return TorchTask(
        nn.Linear(2, 1),
        [data] * clients,
        data,
        training,
        loss=nn.functional.mse_loss,
        score=lambda outputs, targets: (outputs - targets).square().squeeze(1),
        metric=Metric("error", higher_is_better=False),
    )
