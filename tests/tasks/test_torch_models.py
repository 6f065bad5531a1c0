"""Models as people have them: in double precision, with BatchNorm, or with outputs that are more than a tensor."""

from collections import OrderedDict
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from spyker.config.scenario import Training, dump, load
from spyker.errors import UsageError
from spyker.tasks.plain_sgd import beyond_sgd
from spyker.tasks.task import TrainingResult
from spyker.tasks.torch_task import StreamedDataset, TorchTask

X = torch.randn(21, 3, generator=torch.Generator().manual_seed(1))
Y = (X.sum(1) > 0).long()


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))


def task_of(network: nn.Module, *clients: Any, training: Training | None = None, **named: Any) -> TorchTask:
    whole = X.to(next(network.parameters()).dtype), Y
    return TorchTask(network, clients or [whole], whole, training or Training(batch_size=8), seed=7, **named)


def test_a_model_in_double_precision_is_trained_in_it() -> None:
    task, network = task_of(model().double()), model().double()
    optimiser = torch.optim.SGD(network.parameters(), lr=0.5)
    task.seed_all(int(np.random.SeedSequence((7, 0, 0)).generate_state(1, np.uint64)[0]))
    for batch in torch.randperm(21).split(8):
        optimiser.zero_grad()
        nn.functional.cross_entropy(network(X[batch].double()), Y[batch]).backward()
        optimiser.step()
    expected = torch.cat([p.detach().reshape(-1) for p in network.parameters()])
    trained = task.train(0, task.initial(), 0.5, 0)
    assert isinstance(trained, np.ndarray)
    assert (task.initial().dtype, trained.dtype, task.flat.dtype) == (np.float32, np.float32, torch.float64)
    assert np.array_equal(trained, expected.float().numpy())
    assert 0.0 <= task.evaluate(trained) <= 1.0  # type: ignore[operator]


@pytest.mark.parametrize(
    ("network", "inputs", "complaint"),
    [
        (
            model().bfloat16(),
            X,
            r"model has parameters in bfloat16.*model\.float\(\).*training\.autocast = \"bfloat16\"",
        ),
        (model().half(), X, r"model has parameters in float16.*model\.float\(\)"),
        (
            nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2).double()),
            X,
            r"parameters in float32 and float64.*model\.float",
        ),
        (
            model().double(),
            X,
            r"inputs float32.*The model is in float64: write inputs\.double\(\), or model\.float\(\)",
        ),
        (model(), X.double(), r"inputs float64.*Write inputs\.float\(\)"),
    ],
)
def test_a_precision_that_does_not_fit_is_refused_by_its_name(
    network: nn.Module, inputs: torch.Tensor, complaint: str
) -> None:
    with pytest.raises(UsageError, match=complaint):
        TorchTask(network, [(inputs, Y)], (inputs, Y), Training())


def norm(**named: Any) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8, **named), nn.Linear(8, 2))


@pytest.mark.parametrize(
    "data", [(X, Y), DataLoader(TensorDataset(X, Y), 5), StreamedDataset(21, list(zip(X, Y, strict=True)))]
)
def test_a_last_batch_of_one_example_is_left_out_where_a_model_needs_two(data: Any) -> None:
    task = task_of(norm(), data, training=Training(batch_size=5 if isinstance(data, DataLoader) else 4, epochs=2))
    before = task.state_dict(task.initial())
    trained = task.train(0, task.initial(), 0.1, 0)
    assert isinstance(trained, TrainingResult)
    assert trained.examples == 20
    assert not torch.equal(task.state_dict(trained.weights)["1.running_mean"], before["1.running_mean"])
    assert int(task.state_dict(task.initial())["1.running_var"].sum()) == 8, "to look at the model changes nothing"


def test_a_batch_of_one_example_counts_where_a_model_takes_it() -> None:
    network = nn.Sequential(nn.Unflatten(1, (1, 3)), nn.BatchNorm1d(1), nn.Flatten(), nn.Linear(3, 2))
    for each in (model(), network):
        task = task_of(each, training=Training(batch_size=4))
        assert isinstance(task.train(0, task.initial(), 0.1, 0), np.ndarray)


@pytest.mark.parametrize(
    ("clients", "size", "complaint"),
    [
        (
            [(X, Y), (X[:1], Y[:1])],
            4,
            r"client 1: has one example, and .* BatchNorm .* at least two.*leave the client out",
        ),
        ([(X, Y)], 1, r"training\.batch-size: 1 is not allowed: .* BatchNorm .* at least two"),
    ],
)
def test_what_batch_norm_cannot_train_on_is_refused_before_the_run(clients: Any, size: int, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        task_of(norm(), *clients, training=Training(batch_size=size))


class Wrapped(nn.Module):
    """A model that returns what those of Hugging Face return: an object, or a dictionary, with logits."""

    def __init__(self, wrap: Any) -> None:
        super().__init__()
        self.inner, self.wrap = model(), wrap

    def forward(self, inputs: torch.Tensor) -> Any:
        return self.wrap(self.inner(inputs))


WRAPS = {
    "object": lambda logits: SimpleNamespace(logits=logits, hidden_states=None),
    "dictionary": lambda logits: OrderedDict(logits=logits),
}


@pytest.mark.parametrize("wrap", WRAPS)
@pytest.mark.parametrize(
    "loss", [nn.functional.cross_entropy, nn.CrossEntropyLoss(), partial(nn.functional.cross_entropy, reduction="mean")]
)
def test_outputs_with_logits_are_trained_and_judged_by_them(wrap: str, loss: Any) -> None:
    plain, task = task_of(model()), task_of(Wrapped(WRAPS[wrap]), loss=loss)
    expected = plain.train(0, plain.initial(), 0.5, 3)
    trained = task.train(0, task.initial(), 0.5, 3)
    assert isinstance(trained, np.ndarray)
    assert np.array_equal(trained, expected)
    assert task.evaluate(trained) == plain.evaluate(trained)


def test_a_loss_and_a_score_of_ones_own_are_given_all_that_the_model_returns() -> None:
    def loss(outputs: Any, targets: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(outputs.logits, targets)

    task = task_of(Wrapped(WRAPS["object"]), loss=loss)
    assert np.array_equal(task.train(0, task.initial(), 0.5, 3), task_of(model()).train(0, task.initial(), 0.5, 3))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"the loss does not take outputs SimpleNamespace.*outputs\.logits"):
        task_of(Wrapped(WRAPS["object"]), loss=lambda o, y: nn.functional.cross_entropy(o, y))


@pytest.mark.parametrize("optimiser", ["sgd", "momentum"])
def test_accumulated_batches_are_one_batch(optimiser: str) -> None:
    more = {"optimiser": optimiser, "epochs": 2, "clip_norm": 0.1, "proximal": 0.1, "report_loss": True}
    small, large = (
        task_of(model(), training=Training(**kind, **more))
        for kind in ({"batch_size": 4, "accumulate": 2}, {"batch_size": 8})
    )  # type: ignore[arg-type]
    a, b = (task.train(0, task.initial(), 0.5, 3) for task in (small, large))
    assert isinstance(a, TrainingResult)
    assert isinstance(b, TrainingResult)
    np.testing.assert_allclose(a.weights, b.weights, rtol=1e-5, atol=1e-6)
    assert a.metrics is not None
    assert b.metrics is not None
    assert a.metrics["training loss"] == pytest.approx(b.metrics["training loss"])


def test_autocast_computes_the_model_in_bfloat16_and_keeps_weights_in_float32() -> None:
    seen = set()

    class Seen(nn.Module):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            seen.add(inputs.dtype)
            return inputs

    network = nn.Sequential(model(), Seen())
    task = task_of(network, training=Training(batch_size=8, autocast="bfloat16"))
    trained = task.train(0, task.initial(), 0.5, 3)
    assert 0.0 <= task.evaluate(trained) <= 1.0  # type: ignore[arg-type, operator]
    assert seen == {torch.bfloat16}
    exact = task_of(model()).train(0, task.initial(), 0.5, 3)
    np.testing.assert_allclose(trained, exact, atol=0.02)  # type: ignore[arg-type]
    assert not np.array_equal(trained, exact)  # type: ignore[arg-type]


def test_accumulation_and_autocast_are_settings_that_are_unset_by_default() -> None:
    assert not [key for key in ("accumulate", "autocast") if key in dump(load(None))]
    chosen = load(None, {"training.accumulate": 4, "training.autocast": "bfloat16"}).training
    assert (chosen.accumulate, chosen.autocast) == (4, "bfloat16")
    for key, value, complaint in (("accumulate", 0, "at least 1"), ("autocast", "float8", "bfloat16")):
        with pytest.raises(UsageError, match=rf"training\.{key}: .*{complaint}"):
            load(None, {f"training.{key}": value})


@pytest.mark.parametrize("key", ["accumulate", "autocast"])
def test_who_knows_plain_sgd_only_refuses_them(key: str) -> None:
    training = Training(**{key: {"accumulate": 2, "autocast": "bfloat16"}[key]})  # type: ignore[arg-type]
    assert beyond_sgd(training) == key
