"""Models with statistics of the data in them, which no gradient moves: BatchNorm, with every algorithm."""

from pathlib import Path
from typing import Any

import pytest
import torch
from every_algorithm import BUILT_IN_FIRST
from safetensors.numpy import load_file
from torch import nn

import spyker
from spyker.config.scenario import Training
from spyker.tasks.built_in.quadratic import Quadratic

SETTINGS: dict[str, dict[str, Any]] = {"fedbuff": {"fedbuff.server-rate": 3.0}}
SCALE = 0.1  # of the inputs, so that variances fall from 1, where they begin, to a hundredth


def normalised(clients: int, seed: int, training: Any) -> spyker.TorchTask:
    torch.manual_seed(seed)

    def points(count: int) -> tuple[torch.Tensor, torch.Tensor]:
        labels = torch.arange(count) % 2
        return SCALE * (torch.randn(count, 2) + 3.0 * labels[:, None]), labels

    model = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    return spyker.TorchTask(model, [points(60) for _ in range(clients)], points(200), training, seed=seed)


@pytest.mark.parametrize("algorithm", BUILT_IN_FIRST)
def test_variances_stay_above_zero_and_follow_the_data(tmp_path: Path, algorithm: str) -> None:
    settings = {"evaluation.interval": 0.25} | SETTINGS.get(algorithm, {})
    for duration in (1.0, 6.0):
        out = tmp_path / f"{duration:g}"
        spyker.run(
            task=normalised, algorithm=algorithm, duration=duration, clients=12, out=out, workers=0, settings=settings,
            progress=False,
        )  # fmt: skip
        for path in (out / "model.safetensors", *(out / "models").iterdir()):
            assert all((found > 0).all() for name, found in load_file(path).items() if name.endswith("running_var"))
    found = load_file(out / "model.safetensors")
    assert (found["0.running_var"] < 0.5).all(), "they follow the data, whose variance is 0.03"


def test_a_task_says_how_many_there_are() -> None:
    task = normalised(2, 1, Training())
    assert task.buffers == 2 * (2 + 8)
    assert task.initial()[-8:].tolist() == [1.0] * 8, "they stand at the end"
    assert Quadratic.buffers == 0
