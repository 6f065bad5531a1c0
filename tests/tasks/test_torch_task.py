import pickle

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from spyker.config.scenario import Training
from spyker.errors import UsageError
from spyker.own_code import value_digest
from spyker.tasks import torch_training
from spyker.tasks.torch_task import StreamedDataset, TorchTask
from spyker.vectors import mix


def small_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(), nn.Dropout(0.3), nn.Linear(64, 3)
    )


def examples(count: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(seed)
    return torch.rand(count, 1, 8, 8, generator=random), torch.randint(0, 3, (count,), generator=random)


def plain_loop(
    training: Training, data: tuple[torch.Tensor, torch.Tensor], rate: float, seed: int
) -> dict[str, torch.Tensor]:
    """The same training as anybody would write it with PyTorch's own optimiser."""
    model, (inputs, targets) = small_model().to(memory_format=torch.channels_last), data
    inputs = inputs.contiguous(memory_format=torch.channels_last)
    received = [p.detach().clone() for p in model.parameters()]
    optimiser = {
        "sgd": lambda p: torch.optim.SGD(p, lr=rate),
        "momentum": lambda p: torch.optim.SGD(p, lr=rate, momentum=0.9),
        "adam": lambda p: torch.optim.Adam(p, lr=rate),
    }[training.optimiser](model.parameters())
    torch.manual_seed(seed)
    for _ in range(training.epochs):
        for batch in torch.randperm(len(targets)).split(training.batch_size):
            optimiser.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs[batch]), targets[batch])
            loss.backward()
            if training.proximal:
                for p, start in zip(model.parameters(), received, strict=True):
                    p.grad.add_(p.detach() - start, alpha=training.proximal)
            optimiser.step()
    return model.state_dict()


@pytest.mark.parametrize("proximal", [0.0, 0.1])
@pytest.mark.parametrize("optimiser", ["sgd", "momentum", "adam"])
def test_training_equals_the_plain_loop_bit_for_bit(proximal: float, optimiser: str) -> None:
    training = Training(epochs=2, batch_size=8, proximal=proximal, optimiser=optimiser)
    data = examples(20)
    task = TorchTask(small_model(), [data, data], data, training, seed=7)
    seed = int(np.random.SeedSequence((7, 1, 5)).generate_state(1, np.uint64)[0])
    trained = task.state_dict(task.train(1, task.initial(), 0.1, 5))
    expected = plain_loop(training, data, 0.1, seed)
    assert trained.keys() == expected.keys()
    assert all(torch.equal(trained[name], expected[name]) for name in expected)


def test_the_weights_are_the_models_by_name_and_shape() -> None:
    model = small_model()
    expected = {name: value.clone() for name, value in model.state_dict().items()}
    task = TorchTask(model, [examples(4)], examples(4), Training())
    state = task.state_dict(task.initial())
    assert all(torch.equal(state[name], expected[name]) for name in expected)
    small_model().load_state_dict(state)  # usable without Spyker


def test_training_is_a_function_of_its_arguments_alone() -> None:
    task = TorchTask(small_model(), [examples(20, k) for k in range(2)], examples(5), Training(batch_size=8), seed=7)
    start = task.initial()
    first = task.train(0, start, 0.1, 3)
    task.train(1, first, 0.5, 0)
    task.evaluate(first)
    assert np.array_equal(task.train(0, start, 0.1, 3), first)
    assert not np.array_equal(task.train(0, start, 0.1, 4), first)
    assert np.array_equal(task.initial(), start)


def test_floating_point_buffers_travel_with_the_model() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64), nn.Linear(64, 3))
    task = TorchTask(model, [examples(16)], examples(5), Training())
    # BatchNorm: 64 weights, 64 biases, 64 means, 64 variances; Linear: 192 + 3
    assert task.initial().size == 4 * 64 + 195
    trained = task.state_dict(task.train(0, task.initial(), 0.1, 0))
    assert trained["1.running_mean"].abs().sum() > 0
    assert trained["2.weight"].shape == (3, 64)


def test_the_score_is_the_mean_over_the_test_data() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 2, bias=False))
    inputs = torch.eye(4).reshape(4, 1, 2, 2)
    task = TorchTask(model, [(inputs, torch.zeros(4).long())], (inputs, torch.tensor([0, 0, 1, 1])), Training())
    # The first output is the sum of the pixels, the second 0: always label 0, which is right twice out of four.
    assert task.evaluate(np.array([1, 1, 1, 1, 0, 0, 0, 0], np.float32)) == 0.5


class Squares(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    def __len__(self) -> int:
        return 6

    def __getitem__(self, i: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.full((1, 8, 8), float(i)), torch.tensor(i % 3)


def test_any_map_style_dataset_will_do() -> None:
    pairs = [Squares()[i] for i in range(6)]
    tensors = torch.stack([x for x, _ in pairs]), torch.stack([y for _, y in pairs])
    results = []
    for dataset in (Squares(), TensorDataset(*tensors), tensors):
        task = TorchTask(small_model(), [dataset], dataset, Training(), seed=1)
        assert task.size(0) == 6
        results.append(task.train(0, task.initial(), 0.1, 0))
    assert np.array_equal(results[0], results[1])
    assert np.array_equal(results[0], results[2])


@pytest.mark.parametrize(("device", "remedy"), [("cuda", "no CUDA device"), ("gpu", "cuda:N"), ("cuda:x", "cpu")])
def test_a_device_that_is_not_there_is_refused(device: str, remedy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UsageError, match=rf"training\.device.*{remedy}"):
        TorchTask(small_model(), [examples(4)], examples(4), Training(device=device))


@pytest.mark.parametrize("weight", [0.0, 0.1, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("in_place", [True, False])
def test_its_mix_is_the_protocols_mix(weight: float, in_place: bool) -> None:
    random = np.random.default_rng(1)
    target, source = (random.normal(size=1000).astype(np.float32) for _ in range(2))
    source.flags.writeable = False
    expected = np.empty_like(target)
    mix(target, source, weight, expected)
    out = target if in_place else np.empty_like(target)
    task = TorchTask(small_model(), [examples(4)], examples(4), Training())
    task.mix(target, source, weight, out)
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-6)


def test_a_training_leaves_nothing_behind_in_the_task() -> None:
    """Whoever computes a training, and after whatever others: the same result; and the same digest, for sweeps."""
    inputs, targets = examples(20)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 4), nn.BatchNorm1d(4, momentum=None), nn.Linear(4, 3))
    clients = [
        (inputs, targets),
        DataLoader(TensorDataset(inputs, targets), 10),
        StreamedDataset(8, list(zip(*examples(8), strict=True))),
    ]
    task = TorchTask(model, clients, (inputs, targets), Training(batch_size=10), seed=7)
    before, weights = value_digest(task), task.initial()
    first = [task.train(client, weights, 0.1, 3) for client in range(3)]
    assert all(np.array_equal(first[client], task.train(client, weights, 0.1, 3)) for client in range(3))
    task.evaluate(first[0])
    assert value_digest(task) == before
    task.seed = 8
    assert value_digest(task) != before


def test_a_process_that_does_not_train_has_the_model_once() -> None:
    task = TorchTask(small_model(), [examples(20)], examples(20), Training(), seed=7)
    initial = task.initial()
    assert np.shares_memory(initial, task.flat.shared.numpy())
    assert all(parameter.grad is None for parameter in task.flat.parameters)
    assert not initial.flags.writeable
    before = initial.copy()
    trained = task.train(0, initial, 0.1, 0)
    assert not np.array_equal(trained, before)  # type: ignore[arg-type]
    assert np.array_equal(initial, before)
    assert task.initial() is initial
    copy = pickle.loads(pickle.dumps(task))
    assert np.array_equal(copy.initial(), before)
    assert np.array_equal(copy.train(0, initial, 0.1, 0), trained)


def test_a_process_that_only_trains_lends_the_weights_that_it_trained() -> None:
    task = TorchTask(small_model(), [examples(20)], examples(20), Training(), seed=7)
    initial = task.initial().copy()
    expected, score = task.train(0, initial, 0.1, 0), task.evaluate(initial)
    worker = TorchTask(small_model(), [examples(20)], examples(20), Training(), seed=7)
    worker.train_only()
    assert worker.evaluate(initial) == score
    lent = worker.train(0, initial, 0.1, 0)
    assert isinstance(lent, np.ndarray)
    assert np.array_equal(lent, expected)  # type: ignore[arg-type]
    assert np.shares_memory(lent, worker.flat.shared.numpy())


def test_a_process_that_only_trains_does_so_in_the_memory_of_the_weights_that_it_is_given() -> None:
    task = TorchTask(small_model(), [examples(20)], examples(20), Training(), seed=7)
    expected = task.train(0, task.initial(), 0.1, 0)
    given = task.initial().copy()
    task.train_only()
    lent = task.train(0, given, 0.1, 0)
    assert np.shares_memory(given, lent)  # type: ignore[arg-type]
    assert np.array_equal(given, expected)  # type: ignore[arg-type]


def test_trying_the_data_of_another_client_changes_no_weights_that_were_given_back() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 3), nn.BatchNorm1d(3))
    task = TorchTask(model, [examples(20)], examples(20), Training(), seed=7)
    given, norm = task.initial().copy(), model[2]
    assert isinstance(norm, nn.BatchNorm1d)
    task.train_only()
    task.train(0, given, 0.1, 0)
    task.flat.own_memory()
    written: list[bool] = []
    model[0].register_forward_hook(lambda *_: written.append(np.shares_memory(given, norm.running_mean.numpy())))
    task._check({"client 0": task.clients[0]}, None, "")
    assert written
    assert not any(written)


def test_gradients_of_their_own_change_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    trained = []
    for large in (0, 1 << 30):
        monkeypatch.setattr(torch_training, "LARGE", large)
        task = TorchTask(small_model(), [examples(50)], examples(20), Training(batch_size=16, epochs=2), seed=7)
        trained.append(task.train(0, task.initial(), 0.1, 0))
        assert (task.flat.trained.grad is None) == (large == 0)
    assert np.array_equal(*trained)  # type: ignore[arg-type]
