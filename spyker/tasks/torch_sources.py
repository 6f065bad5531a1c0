"""Conversion of the user's datasets to a common form, with checks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, default_collate

from spyker.errors import UsageError
from spyker.tasks.torch_data import (
    Collate,
    DataLoaderData,
    DataProblemError,
    DataSource,
    ExampleReader,
    InMemoryData,
    LazyDataset,
    LazySource,
    MapStyleData,
    StreamedData,
    StreamedDataset,
    as_tensor,
    columns,
    is_iterable,
    shape,
)

HOLD_OUT = 0xE7A1  # distinguishes this use of the seed


def as_source(data: Any, reading: ExampleReader, collate: Collate | None) -> DataSource:
    """Convert the user's data to a ``DataSource``."""
    if isinstance(data, LazyDataset):
        return LazySource(reading, data)
    if isinstance(data, DataSource):
        return data  # already converted by another task
    if isinstance(data, StreamedDataset):
        return streamed(data, reading, collate)
    if isinstance(data, DataLoader):
        return loaded(data, reading)
    if is_columns(data):
        whole = columns(reading, data)
        return whole if collate is None else MapStyleData(reading, Rows(whole), collate)
    if isinstance(data, Sized) and hasattr(data, "__getitem__") and not isinstance(data, IterableDataset):
        if len(data) == 0:
            raise DataProblemError("has no examples", "Add examples")
        if collate is not None:
            return MapStyleData(reading, data, collate)
        return read_all(data, reading)
    if not is_iterable(data):
        raise DataProblemError(
            f"is {type(data).__name__}", "Give tensors, a dataset, a DataLoader or a StreamedDataset"
        )
    if not has_length(data):
        raise DataProblemError("has no length", "Give the number of examples: spyker.StreamedDataset(count, dataset)")
    return streamed(StreamedDataset(len(data), data), reading, collate)


def is_columns(data: Any) -> bool:
    """Return whether the data are columns of inputs and targets, and not a list of examples."""
    if isinstance(data, TensorDataset | Mapping | tuple):
        return True
    return isinstance(data, list) and all(isinstance(part, Tensor | np.ndarray) for part in data) and len(data) > 0


def read_all(dataset: Any, reading: ExampleReader) -> InMemoryData:
    """Read a map-style dataset into tensors."""
    rows = [dataset[i] for i in range(len(dataset))]
    parts = [reading.parts(row) for row in rows]
    stacked = {}
    for name in parts[0]:
        tensors = [as_tensor(part[name], name) for part in parts]
        other = next((i for i, tensor in enumerate(tensors) if tensor.shape != tensors[0].shape), None)
        if other is not None:
            raise DataProblemError(
                f"has {name.removesuffix(' 0')} of different shapes: example 0 is {shape(tensors[0])}, example {other} "
                f"{shape(tensors[other])}",
                "Define the method collate, which makes a batch of a list of examples, or give TorchTask a collate_fn",
            )
        stacked[name] = torch.stack(tensors)
    return InMemoryData(reading, stacked, by_name=isinstance(rows[0], Mapping))


def loaded(loader: DataLoader[Any], reading: ExampleReader, count: int | None = None) -> DataSource:
    """Return a DataLoader as a data source for any process."""
    if loader.num_workers:
        raise DataProblemError(
            f"is a DataLoader with num_workers={loader.num_workers}, and a training process cannot start others",
            "Write num_workers=0: clients train side by side already",
        )
    if count is None:
        if not has_length(loader.dataset):
            raise DataProblemError(
                "is a DataLoader of a dataset without a length",
                "Give the number of examples: spyker.StreamedDataset(count, loader)",
            )
        count, batches = len(loader.dataset), len(loader)  # type: ignore[arg-type]
        if batches == 0:
            raise DataProblemError(f"is a DataLoader of {count} examples that gives no batch", "Write drop_last=False")
    return DataLoaderData(reading, loader, count)


def streamed(stream: StreamedDataset, reading: ExampleReader, collate: Collate | None) -> DataSource:
    """Return a stream, which must be readable more than once, as a data source."""
    source = stream.source
    if stream.count < 1:
        raise DataProblemError(f"is a StreamedDataset of {stream.count} examples", "Give it at least one")
    if isinstance(source, DataLoader):
        return loaded(source, reading, stream.count)
    if isinstance(source, Iterator):
        raise DataProblemError(
            f"is a StreamedDataset of a {type(source).__name__}, which can be read only once",
            "Give an iterable that can be read again, or a function that returns a new one",
        )
    return StreamedData(reading, stream, collate or collate_rows)


def collate_rows(examples: list[Any]) -> Any:
    """Collate examples whose numbers may be in lists, as in streams of Hugging Face."""
    return default_collate([with_tensors(example) for example in examples])


def with_tensors(example: Any) -> Any:
    """Convert lists of numbers in an example to tensors."""
    if isinstance(example, Mapping):
        return {name: listed(part) for name, part in example.items()}
    return tuple(map(listed, example)) if isinstance(example, tuple | list) else example


def listed(part: Any) -> Any:
    """Convert a list of numbers to a tensor; return anything else unchanged."""
    try:
        return torch.as_tensor(part) if isinstance(part, list) else part
    except (TypeError, ValueError, RuntimeError):
        return part  # such as words


class Rows(Dataset[Any]):
    """A map-style dataset of the rows of columns."""

    def __init__(self, whole: InMemoryData) -> None:
        self.whole = whole

    def __len__(self) -> int:
        return self.whole.count

    def __getitem__(self, i: int) -> Any:
        row = {name: part[i] for name, part in self.whole.parts.items()}
        return row if self.whole.by_name else tuple(row.values())


def has_length(data: Any) -> bool:
    """Return whether the data has a length."""
    try:
        return isinstance(data, Sized) and len(data) >= 0
    except (TypeError, NotImplementedError):
        return False


def sources(
    data: Sequence[Any], reading: ExampleReader, collate: Collate | None, name: Callable[[int], str]
) -> list[DataSource]:
    """Convert datasets; raise a ``UsageError`` that names the one with a problem."""
    found = []
    for i, each in enumerate(data):
        try:
            found.append(as_source(each, reading, collate))
        except DataProblemError as problem:
            raise UsageError("task", f"{name(i)} {problem.problem}", problem.remedy) from None
    return found


def hold_out(
    source: DataSource, share: float, seed: int, client: int, owner: str
) -> tuple[DataSource, DataSource | None]:
    """Split a client's data into training data and a held-out part for evaluation.

    Args:
        source: the client's data.
        share: the part to hold out, at least one example. The only example of a client is not held out.
        seed: seed of the random choice.
        client: number of the client, which also determines the choice.
        owner: whose data it is, for errors.

    Raises:
        UsageError: the data can only be read in its own order.

    """
    if source.count < 2:
        return source, None
    order = torch.from_numpy(np.random.default_rng((seed, client, HOLD_OUT)).permutation(source.count))
    count = min(max(1, round(share * source.count)), source.count - 1)
    test, train = order[:count].sort().values, order[count:].sort().values
    kept, held_out = source.subset(train), source.subset(test)
    if kept is None:
        raise UsageError(
            "evaluation.by",
            f"clients is not allowed: {owner} has a DataLoader or a stream, from which no part can be held out",
            "Return the client's test data from client_test(), or give TorchTask client_tests",
        )
    return kept, held_out
