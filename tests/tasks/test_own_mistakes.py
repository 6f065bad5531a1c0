"""What people get wrong in a task of their own is refused before anything begins: who, what shape, what remedy."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from spyker.config.scenario import Training, load
from spyker.errors import TaskError, UsageError
from spyker.tasks.checked_task import CheckedTask
from spyker.tasks.registry import choose, resolve, task_spec
from spyker.tasks.task import Metric, Task
from spyker.tasks.torch_task import ExtraMetric, LazyDataset, StreamedDataset, TorchTask

TRAINING = Training()


def data(count: int = 10) -> tuple[torch.Tensor, torch.Tensor]:
    inputs = torch.randn(count, 2, generator=torch.Generator().manual_seed(count))
    return inputs, (inputs[:, 0] > 0).long()


def losses(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(outputs, targets, reduction="none")


def task(*clients: Any, model: nn.Module | None = None, test: Any = None, **named: Any) -> TorchTask:
    return TorchTask(model or nn.Linear(2, 2), clients or [data()], test or data(), TRAINING, **named)


def broken() -> nn.Module:
    model = nn.Linear(2, 2)
    with torch.no_grad():
        model.weight[1, 0] = float("inf")
    return model


X, Y = data()
LOSS = Metric("loss", higher_is_better=False)


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: task((X, Y), (X, Y[:5])), r"client 1 has 10 inputs and 5 targets\. Give as many inputs as targets"),
        (lambda: task((X, Y), data(0)), r"client 1 has no examples"),
        (lambda: task(), r"^$"),
        (lambda: TorchTask(nn.Linear(2, 2), [], data(), TRAINING), r"has no client"),
        (lambda: task(test=data(0)), r"the test data has no examples"),
        (lambda: task(model=nn.Linear), r"a model that is the class Linear, no torch\.nn\.Module\. Call it"),
        (lambda: task(model=nn.Linear(2, 2).requires_grad_(False)), r"without any parameter that can be trained"),
        (lambda: task(model=broken()), r"has a model with weights that are not finite \(weight\[1, 0\] is inf\)"),
        (lambda: task((X, Y), (X[:, :1], Y)), r"client 1: inputs are float32 \(10, 1\).*client 0 float32 \(10, 2\)"),
        (lambda: task((X, Y), (X, Y.int())), r"client 1: targets are int32"),
        (lambda: task((X[:, :1], Y)), r"client 0: the model does not take inputs float32 \(2, 1\).*first layer"),
        (lambda: task((X.double(), Y)), r"inputs float64.*Write inputs\.float\(\)"),
        (lambda: task((X.double().numpy(), Y)), r'inputs float64.*of a NumPy array inputs\.astype\("float32"\)'),
        (lambda: task((X.long(), Y)), r"inputs int64.*Write inputs\.float\(\)"),
        (lambda: task((X, nn.functional.one_hot(Y, 2))), r"the loss does not take.*write targets\.argmax\(1\)"),
        (
            lambda: task(test=(X, nn.functional.one_hot(Y, 2).float())),
            r"accuracy, the default score, does not take.*write targets\.argmax\(1\)",
        ),
        (lambda: task((X, Y.float())), r"the loss does not take.*targets float32 \(2,\).*targets\.long\(\)"),
        (
            lambda: task((X, Y + 9), loss=lambda o, y: nn.functional.cross_entropy(o, y)),
            r"the loss does not take.*out of bounds.*Count the classes from 0",
        ),
        (lambda: task((X, Y), (X, Y + 1)), r"client 1: has a target 2, and the model 2 outputs.*0 to 1"),
        (lambda: task(loss=nn.CrossEntropyLoss(reduction="none")), r"is float32 \(2,\), not one number.*mean"),
        (lambda: task(score=losses), r"score without a metric.*higher_is_better=False"),
        (
            lambda: task(score=lambda o, y: losses(o, y).mean(), metric=LOSS),
            r"score of loss is float32 \(\) for 2 examples.*Leave out \.mean\(\)",
        ),
        (lambda: task(score=lambda o, y: float(y.sum()), metric=LOSS), r"score of loss is float .*Return a tensor"),
        (lambda: task(also=[ExtraMetric(LOSS, lambda o, y: o)]), r"score of loss is float32 \(2, 2\) for 2 examples"),
        (
            lambda: task((X, X[:, 0]), model=nn.Linear(2, 1), loss=nn.functional.mse_loss),
            r"outputs float32 \(2, 1\) and targets float32 \(2,\), every output with every target.*unsqueeze\(1\)",
        ),
        (lambda: task([(X[:3], 0), (X[:4], 1)]), r"client 0 has inputs of different shapes.*\(3, 2\).*collate_fn"),
        (lambda: task([("a text", 0)]), r"client 0 has inputs that are not numbers.*collate_fn"),
        (
            lambda: task((X, ["yes", "no"] * 5)),
            r"client 0 has targets that are words, such as 'yes'\. Return numbers.*from 0",
        ),
        (lambda: task([{"text": 1, "sentiment": 0}]), r"'text', 'sentiment'.*none of them is the target.*target="),
        (lambda: task([{"x": 1.0, "y": 0}], inputs="image"), r"columns are 'x', 'y', and 'image' is not among them"),
        (lambda: task([3, 4]), r"client 0 an example of it is int"),
        (lambda: task(3), r"client 0 is int\. Give tensors"),
        (lambda: task(iter([(X[0], 0)])), r"client 0 has no length.*spyker\.StreamedDataset\(count, dataset\)"),
        (lambda: task(StreamedDataset(3, iter([(X[0], 0)]))), r"can be read only once"),
        (lambda: task(StreamedDataset(0, [(X[0], 0)])), r"a StreamedDataset of 0 examples"),
        (lambda: task(DataLoader(TensorDataset(X, Y), num_workers=2)), r"num_workers=2.*Write num_workers=0"),
        (lambda: task(DataLoader(TensorDataset(X, Y), 32, drop_last=True)), r"10 examples that gives no batch"),
        (lambda: task(data(), data(), client_tests=[data()]), r"data for 2 clients, and client_tests for 1"),
        (lambda: task(client_tests=[(X, Y[:1])]), r"the test data of client 0 has 10 inputs and 1 targets"),
    ],
)
def test_it_is_refused_with_whose_it_is_and_a_remedy(make: Callable[[], TorchTask], complaint: str) -> None:
    if complaint == "^$":  # nothing is wrong with it
        assert make().size(0) == 10
        return
    with pytest.raises(UsageError, match=complaint):
        make()


def test_a_batch_size_that_a_data_loader_would_not_heed_is_refused() -> None:
    loader = DataLoader(TensorDataset(X, Y), batch_size=4)
    with pytest.raises(UsageError, match=r"training\.batch-size: is 8, and client 0 has a DataLoader.*of 4"):
        TorchTask(nn.Linear(2, 2), [loader], data(), Training(batch_size=8))


@pytest.mark.parametrize(
    ("count", "complaint"), [(3, "is at least 4 in total, .* for 3"), (5, "is 4 in total, .* for 5")]
)
def test_as_many_datasets_as_clients(count: int, complaint: str) -> None:
    def make(clients: int, seed: int, training: Training) -> TorchTask:
        return task(*[data()] * count)

    scenario = load(None, clients=4)
    with pytest.raises(UsageError, match=rf"world\.clients: {complaint}"):
        task_spec(resolve(replace(scenario, task=choose(make)))).make()


def test_what_only_a_training_can_tell_names_client_and_shapes() -> None:
    bad = LazyDataset(3, lambda: (torch.zeros(3, 5), torch.zeros(3).long()))
    guard = CheckedTask(task(data(), bad))
    with pytest.raises(TaskError, match=r"(?s)training client 1.*batch is inputs float32 \(3, 5\), targets int64"):
        guard.train(1, guard.task.initial(), 0.1, 7)


def test_looking_at_a_model_changes_neither_it_nor_what_is_drawn() -> None:
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 2))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    torch.manual_seed(4)
    task(model=model)
    drawn = torch.rand(3)
    torch.manual_seed(4)
    assert torch.equal(drawn, torch.rand(3))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model.training


class Silent(Task):
    """Says nothing about what it measures."""

    def initial(self) -> Any:
        return np.zeros(1, np.float32)

    def size(self, client: int) -> int:
        return 1 if client else 0

    def train(self, client: int, weights: Any, rate: float, step: int) -> Any:
        return weights

    def evaluate(self, weights: Any) -> float:
        return 2.0


def test_a_task_that_names_no_metric_has_no_targets() -> None:
    assert (Silent.metric.name, Silent.metric.targets) == ("score", ())


def test_no_client_of_any_task_may_be_without_examples() -> None:
    scenario = replace(load(None, clients=4), task=choose(Silent()))
    with pytest.raises(UsageError, match="client 0 has 0 examples"):
        task_spec(resolve(scenario)).make()


def test_an_error_that_says_what_to_do_comes_without_a_traceback() -> None:
    """A stream is opened when it is trained, and only then seen to be empty."""
    made = task(StreamedDataset(10, [(X[0], Y[0])]), StreamedDataset(10, []))
    with pytest.raises(TaskError) as failure:
        CheckedTask(made).train(1, made.initial(), 0.1, 0)
    assert "client 1 gives no example" in str(failure.value)
    assert "Traceback" not in str(failure.value)


def test_a_function_that_cannot_be_told_what_a_task_must_know_is_shown_how_to_be_declared() -> None:
    def short(clients: int, width: int = 2) -> Task:
        raise AssertionError

    remedy = r"does not take seed and training\. Declare it as a function of \(clients, seed, training, width\)"
    with pytest.raises(UsageError, match=remedy):
        task_spec(resolve(replace(load(None), task=choose(short)))).make()
