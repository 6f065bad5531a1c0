"""Kernels of other packages, in place of PyTorch."""

import numpy as np
import pytest
import torch
from torch import nn

from spyker.config.scenario import Training, load
from spyker.errors import UsageError
from spyker.tasks.torch_task import TorchTask

DATA = torch.randn(6, 4), torch.arange(6) % 2


class Halving:
    """Trains by halving all weights."""

    def train(self, weights, inputs, targets, orders, rate, training):
        assert [len(order) for order in orders] == [len(inputs)] * training.epochs
        return weights / 2

    def outputs(self, weights, inputs):
        return nn.functional.one_hot(torch.zeros(len(inputs), dtype=torch.int64), 2).float()


def halving(model, example, loss, training):
    assert tuple(example) == (4,)
    return Halving()


def test_a_kernel_that_is_named_trains_and_evaluates() -> None:
    task = TorchTask(nn.Linear(4, 2), [DATA], DATA, Training(kernel=f"{__name__}:halving", epochs=2))
    weights = task.initial()
    np.testing.assert_array_equal(task.train(0, weights, 0.1, 0), weights / 2)
    assert task.evaluate(weights) == 0.5


def test_an_unknown_kernel_is_refused_when_the_scenario_is_read() -> None:
    with pytest.raises(UsageError, match=r"training\.kernel: \"torhc\" is not allowed\. Did you mean 'torch'"):
        load(None, {"training.kernel": "torhc"})
