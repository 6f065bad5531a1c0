"""Datasets as people have them: the same training, whatever form the same examples are in."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, default_collate

from spyker.config.scenario import Training
from spyker.tasks.task import Metric, TrainingResult
from spyker.tasks.torch_task import ExtraMetric, LazyDataset, StreamedDataset, TorchTask

X = torch.randn(20, 3, generator=torch.Generator().manual_seed(1))
Y = (X.sum(1) > 0).long()
TRAINING = Training(batch_size=8, epochs=2, rate=0.1)


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(3, 2)


class Pairs(Dataset[Any]):
    def __len__(self) -> int:
        return len(X)

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        return X[i], int(Y[i])


class Rows(Dataset[Any]):
    """As a dataset of Hugging Face's: plain values in dictionaries, some of which are for people."""

    def __len__(self) -> int:
        return len(X)

    def __getitem__(self, i: int) -> dict[str, Any]:
        return {"id": f"row {i}", "features": X[i].tolist(), "label": int(Y[i])}


class Flow(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter(Pairs()[i] for i in range(len(X)))


def trained(dataset: Any, **named: Any) -> Any:
    task = TorchTask(model(), [dataset], dataset, TRAINING, seed=3, **named)
    assert task.size(0) == 20
    return task.train(0, task.initial(), 0.1, 4), task.evaluate(task.initial())


@pytest.mark.parametrize(
    ("dataset", "named"),
    [
        ((X.numpy(), Y.numpy()), {}),
        ([X, Y], {}),
        (TensorDataset(X, Y), {}),
        ({"x": X, "label": Y}, {}),
        (Pairs(), {}),
        (Rows(), {"inputs": "features"}),
        ([(x, y) for x, y in zip(X, Y, strict=True)], {}),
        (LazyDataset(20, lambda: (X, Y)), {}),
        (LazyDataset(20, lambda: {"x": X, "y": Y}), {}),
        (Pairs(), {"collate_fn": default_collate}),
        ((X, Y), {"collate_fn": default_collate}),
        ({"x": X, "y": Y}, {"collate_fn": default_collate}),
    ],
)
def test_every_form_trains_and_scores_alike(dataset: Any, named: dict[str, Any]) -> None:
    expected, score = trained((X, Y))
    weights, theirs = trained(dataset, **named)
    assert np.array_equal(weights, expected)
    assert theirs == score


def test_a_data_loader_keeps_its_own_batches() -> None:
    class Counting(nn.Linear):
        seen: list[int] = []  # noqa: RUF012

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.training:
                self.seen.append(len(x))
            return super().forward(x)

    for generator in (None, torch.Generator()):
        loader = DataLoader(Pairs(), batch_size=6, shuffle=True, generator=generator)
        task = TorchTask(Counting(3, 2), [loader], loader, Training(), seed=3)
        Counting.seen.clear()
        first = task.train(0, task.initial(), 0.1, 0)
        assert Counting.seen == [6, 6, 6, 2]
        task.train(0, task.initial(), 0.1, 1)
        score = task.evaluate(task.initial())
        assert np.array_equal(task.train(0, task.initial(), 0.1, 0), first)  # whatever was drawn in between
        assert not np.array_equal(task.train(0, task.initial(), 0.1, 1), first)
        assert task.evaluate(task.initial()) == score


def test_a_stream_is_read_from_its_beginning_and_no_further_than_said() -> None:
    read: list[int] = []

    class Endless(IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            i = 0
            while True:
                read.append(i)
                yield X[i % 20], Y[i % 20]
                i += 1

    task = TorchTask(model(), [StreamedDataset(10, Endless())], (X, Y), TRAINING)
    assert task.size(0) == 10
    read.clear()
    first = task.train(0, task.initial(), 0.1, 0)
    assert read == [*range(10)] * 2  # two epochs
    assert np.array_equal(task.train(0, task.initial(), 0.1, 0), first)


def test_a_stream_may_go_on_from_training_to_training() -> None:
    starts: list[int] = []

    def source(step: int) -> Iterator[Any]:
        starts.append(step)
        return iter([(X[(step + i) % 20], Y[(step + i) % 20]) for i in range(5)])

    task = TorchTask(model(), [StreamedDataset(5, source)], (X, Y), Training())
    starts.clear()
    for step in (0, 7):
        task.train(0, task.initial(), 0.1, step)
    assert starts == [0, 7]


def test_a_stream_that_ends_early_says_on_how_much_it_trained() -> None:
    task = TorchTask(model(), [StreamedDataset(50, Flow())], (X, Y), Training())
    answer = task.train(0, task.initial(), 0.1, 0)
    assert isinstance(answer, TrainingResult)
    assert answer.examples == 20


def test_a_loader_of_a_stream_needs_a_count() -> None:
    task = TorchTask(model(), [StreamedDataset(20, DataLoader(Flow(), batch_size=8))], (X, Y), Training())
    assert isinstance(task.train(0, task.initial(), 0.1, 0), np.ndarray)


class Bag(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.out = nn.Embedding(9, 4, padding_idx=0), nn.Linear(4, 2)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        return self.out((self.embed(input_ids) * attention_mask[:, :, None]).sum(1))


def test_ragged_text_with_names_as_of_hugging_face() -> None:
    def pad(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        ids = pad_sequence([torch.tensor(row["input_ids"]) for row in rows], batch_first=True)
        return {"input_ids": ids, "attention_mask": ids > 0, "labels": torch.tensor([row["labels"] for row in rows])}

    rows = [{"input_ids": [1 + i % 8] * (1 + i % 5), "labels": i % 2} for i in range(20)]
    task = TorchTask(Bag(), [rows], rows, Training(batch_size=4, epochs=30), collate_fn=pad)
    before, after = task.evaluate(task.initial()), task.evaluate(task.train(0, task.initial(), 0.5, 0))  # type: ignore[arg-type]
    assert isinstance(after, float)
    assert after > before  # type: ignore[operator]


def test_several_inputs_of_a_tuple_come_in_their_order() -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.out = nn.Linear(3, 2)

        def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return self.out(a - b)

    task = TorchTask(Both(), [(X, -X, Y)], (X, -X, Y), TRAINING)
    assert isinstance(task.train(0, task.initial(), 0.1, 0), np.ndarray)


def losses(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(outputs, targets, reduction="none")


def test_training_loss_and_each_clients_own_test_are_measured() -> None:
    also = [ExtraMetric(Metric("loss", higher_is_better=False), losses)]
    training = Training(report_loss=True, epochs=3)
    task = TorchTask(model(), [(X, Y)] * 2, (X, Y), training, also=also, client_tests=[(X, Y), (X[:5], Y[:5])])
    answer = task.train(1, task.initial(), 0.0, 0)
    assert isinstance(answer, TrainingResult)
    with torch.no_grad():
        expected = losses(model()(X), Y).mean()
        own = losses(model()(X[:5]), Y[:5]).mean()
    assert answer.metrics is not None
    assert answer.metrics["training loss"] == pytest.approx(float(expected))  # at the rate 0, that of the model
    found = task.evaluate_client(1, task.initial())
    assert found is not None
    assert found.examples == 5
    assert found.scores["loss"] == pytest.approx(float(own))
    assert 0 <= found.scores["accuracy"] <= 1
    assert task.evaluate(task.initial()) == {
        "accuracy": pytest.approx(0.5, abs=0.5),
        "loss": pytest.approx(float(expected)),
    }


def test_a_stream_of_rows_with_plain_lists_is_a_stream_of_numbers() -> None:
    """As Hugging Face's iterable datasets give them."""
    rows = [{"x": x.tolist(), "label": int(y), "text": "not used"} for x, y in zip(X, Y, strict=True)]
    named: dict[str, Any] = {"inputs": "x", "target": "label"}
    lists = TorchTask(model(), [StreamedDataset(len(rows), rows)], rows, Training(), **named)
    tensors = TorchTask(model(), [StreamedDataset(len(rows), list(zip(X, Y, strict=True)))], (X, Y), Training())
    start = lists.initial()
    np.testing.assert_array_equal(lists.train(0, start, 0.1, 0), tensors.train(0, start, 0.1, 0))
