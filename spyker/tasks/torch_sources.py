"""From what people have to what is trained on: which form a dataset is in, and what is wrong with it."""

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


def as_source(data: Any, reading: ExampleReader, collate: Collate | None) -> DataSource:
    """Whatever the user has, in one form."""
    if isinstance(data, LazyDataset):
        return LazySource(reading, data)
    if isinstance(data, DataSource):
        return data  # another task has made it of what it was given
    if isinstance(data, StreamedDataset):
        return streamed(data, reading, collate)
    if isinstance(data, DataLoader):
        return loaded(data, reading)
    if is_columns(data):
        whole = columns(reading, data)
        return whole if collate is None else MapStyleData(reading, Rows(whole), collate)
    if isinstance(data, Sized) and hasattr(data, "__getitem__") and not isinstance(data, IterableDataset):
        if len(data) == 0:
            raise DataProblemError("has no examples", "Give it some")
        if collate is not None:
            return MapStyleData(reading, data, collate)
        return read_all(data, reading)
    if not is_iterable(data):
        raise DataProblemError(
            f"{type(data).__name__} is not allowed", "Give tensors, a dataset, a DataLoader or a StreamedDataset"
        )
    if not has_length(data):
        raise DataProblemError(
            "has no length", "Say how much of it is a client's data: spyker.StreamedDataset(count, dataset)"
        )
    return streamed(StreamedDataset(len(data), data), reading, collate)


def is_columns(data: Any) -> bool:
    """Whether it is a column of inputs and one of targets, or more, and not a list of examples."""
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
                "Give TorchTask a collate_fn, which makes a batch of a list of examples",
            )
        stacked[name] = torch.stack(tensors)
    return InMemoryData(reading, stacked, by_name=isinstance(rows[0], Mapping))


def loaded(loader: DataLoader[Any], reading: ExampleReader, count: int | None = None) -> DataSource:
    """A DataLoader that trains wherever it is sent."""
    if loader.num_workers:
        raise DataProblemError(
            f"is a DataLoader with num_workers={loader.num_workers}, and a training process cannot start others",
            "Write num_workers=0: clients train side by side already",
        )
    if count is None:
        if not has_length(loader.dataset):
            raise DataProblemError(
                "is a DataLoader of a dataset without a length",
                "Say how much of it is a client's data: spyker.StreamedDataset(count, loader)",
            )
        count, batches = len(loader.dataset), len(loader)  # type: ignore[arg-type]
        if batches == 0:
            raise DataProblemError(f"is a DataLoader of {count} examples that gives no batch", "Write drop_last=False")
    return DataLoaderData(reading, loader, count)


def streamed(stream: StreamedDataset, reading: ExampleReader, collate: Collate | None) -> DataSource:
    """A stream that can be read more than once."""
    source = stream.source
    if stream.count < 1:
        raise DataProblemError(f"is a StreamedDataset of {stream.count} examples", "Give it at least one")
    if isinstance(source, DataLoader):
        return loaded(source, reading, stream.count)
    if isinstance(source, Iterator):
        raise DataProblemError(
            f"is a StreamedDataset of a {type(source).__name__}, which can be read only once",
            "Give what can be read again, or a function that begins anew",
        )
    return StreamedData(reading, stream, collate or collate_rows)


def collate_rows(examples: list[Any]) -> Any:
    """A batch of examples, whose numbers may come in lists, as Hugging Face streams them."""
    return default_collate([with_tensors(example) for example in examples])


def with_tensors(example: Any) -> Any:
    """An example whose lists of numbers are tensors."""
    if isinstance(example, Mapping):
        return {name: listed(part) for name, part in example.items()}
    return tuple(map(listed, example)) if isinstance(example, tuple | list) else example


def listed(part: Any) -> Any:
    """A list of numbers as a tensor; anything else as it is."""
    try:
        return torch.as_tensor(part) if isinstance(part, list) else part
    except (TypeError, ValueError, RuntimeError):
        return part  # such as words


class Rows(Dataset[Any]):
    """Columns as examples."""

    def __init__(self, whole: InMemoryData) -> None:
        self.whole = whole

    def __len__(self) -> int:
        return self.whole.count

    def __getitem__(self, i: int) -> Any:
        row = {name: part[i] for name, part in self.whole.parts.items()}
        return row if self.whole.by_name else tuple(row.values())


def has_length(data: Any) -> bool:
    """Whether it says how many examples it has."""
    try:
        return isinstance(data, Sized) and len(data) >= 0
    except (TypeError, NotImplementedError):
        return False


def sources(
    data: Sequence[Any], reading: ExampleReader, collate: Collate | None, whose: Callable[[int], str]
) -> list[DataSource]:
    """All of some datasets, or an error that says whose is wrong."""
    found = []
    for i, each in enumerate(data):
        try:
            found.append(as_source(each, reading, collate))
        except DataProblemError as problem:
            raise UsageError("task", f"{whose(i)} {problem.problem}", problem.remedy) from None
    return found
