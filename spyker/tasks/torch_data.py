"""Datasets of a :class:`~spyker.tasks.torch_task.TorchTask`, in a common form.

An example or a batch is ``(inputs, target)``, a tuple whose last part is the target, or a dictionary.
:class:`ExampleReader` converts it to arguments of the model.

- Columns, and map-style datasets, are read once and kept in memory, as tensors.
- With a ``collate_fn``, a map-style dataset is read batch by batch instead and not kept in memory.
- A :class:`LazyDataset` is read whenever it is needed; a :class:`StreamedDataset` likewise, but batch by batch.
- A ``DataLoader`` makes its own batches, in its own order.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset

Examples: TypeAlias = tuple[Tensor, Tensor]
Collate: TypeAlias = Callable[[list[Any]], Any]
TARGETS = ("labels", "label", "targets", "target", "y")  # usual names of the target column


@dataclass(frozen=True, slots=True)
class LazyDataset:
    """A dataset of ``count`` examples that is read again for each training and not kept in memory.

    Use it for data whose source is fast, shared among processes, and smaller than its tensors.
    """

    count: int
    read: Callable[[], Any]
    """Function that returns all examples as columns: ``(inputs, targets)`` or a dictionary."""


@dataclass(frozen=True, slots=True)
class StreamedDataset:
    """A dataset that does not fit into memory; each epoch reads ``count`` examples.

    ``source`` is an iterable, read from its beginning in every epoch, or a function of the number of the training,
    from 0, that returns an iterable, so that a client may continue where its last training ended.
    """

    count: int
    source: Iterable[Any] | Callable[[int], Iterable[Any]]


Data: TypeAlias = (
    Examples
    | Dataset[Any]
    | DataLoader[Any]
    | LazyDataset
    | StreamedDataset
    | Mapping[str, Any]
    | Sequence[Any]
    | Iterable[Any]
)


class DataProblemError(Exception):
    """A problem of a dataset and its remedy. The caller adds the name of the dataset."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(f"{problem}. {remedy}")
        self.problem, self.remedy = problem, remedy


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch of examples as arguments of a model."""

    inputs: tuple[Any, ...]
    named: dict[str, Any]
    targets: Any

    @property
    def count(self) -> int:
        """Number of examples."""
        some = self.targets
        while isinstance(some, Mapping):
            some = next(iter(some.values()))
        return len(some)


@dataclass(frozen=True, slots=True)
class ExampleReader:
    """Splits an example into the model's inputs and the target."""

    inputs: str | Sequence[str] | None = None
    """Keys of dictionaries: one key is passed as positional argument, several as keyword arguments."""
    target: str | None = None

    def names(self, example: Mapping[str, Any]) -> list[str]:
        """Return the keys to read, the target last."""
        target = self.target or next((name for name in TARGETS if name in example), None)
        inputs = [self.inputs] if isinstance(self.inputs, str) else self.inputs
        names = [name for name in example if name != target] if inputs is None else list(inputs)
        missing = next((name for name in [*names, target] if name not in example), None)
        if target is None or missing is not None or not names:
            what = "none of them is the target" if target is None or not names else f"{missing!r} is not among them"
            raise DataProblemError(
                f"its columns are {', '.join(map(repr, example))}, and {what}",
                'Name them: inputs="image" and target="label", attributes of a FederatedTask or arguments of TorchTask',
            )
        return [*names, target]

    def parts(self, example: Any) -> dict[str, Any]:
        """Return the parts of an example or batch by name, the target last."""
        if isinstance(example, Mapping):
            return {name: example[name] for name in self.names(example)}
        if isinstance(example, tuple | list) and len(example) > 1:
            return {**{f"inputs {i}": part for i, part in enumerate(example[:-1])}, "targets": example[-1]}
        raise DataProblemError(
            f"an example of it is {type(example).__name__}", "Give (inputs, target), or a dictionary with names"
        )

    def batch(self, raw: Any) -> Batch:
        """Convert a raw batch of a dataset."""
        return self.arranged(self.parts(raw), by_name=isinstance(raw, Mapping))

    def arranged(self, parts: Mapping[str, Any], *, by_name: bool) -> Batch:
        """Return a batch of named parts, with positional inputs or, ``by_name``, keyword inputs."""
        *names, target = parts
        if by_name and len(names) > 1:
            return Batch((), {name: parts[name] for name in names}, parts[target])
        return Batch(tuple(parts[name] for name in names), {}, parts[target])


class OpenDataset(ABC):
    """An open dataset."""

    @abstractmethod
    def shuffled(self, size: int) -> Iterator[Batch]:
        """Yield batches of up to ``size``, shuffled by PyTorch's generator unless the dataset has its own order."""

    @abstractmethod
    def in_order(self, size: int) -> Iterator[Batch]:
        """Yield batches of up to ``size`` in the dataset's order."""


class DataSource(ABC):
    """A dataset of ``count`` examples."""

    def __init__(self, count: int) -> None:
        self.count = count

    @abstractmethod
    def open(self, device: torch.device, step: int = 0) -> OpenDataset:
        """Open the dataset for training number ``step`` of a client."""

    def subset(self, which: Tensor) -> DataSource | None:
        """Return the examples with these numbers; ``None`` if the dataset can only be read in its own order."""
        return None


class InMemoryData(DataSource, OpenDataset):
    """All examples as tensors, one per column."""

    def __init__(self, reading: ExampleReader, parts: Mapping[str, Tensor], *, by_name: bool) -> None:
        super().__init__(next(iter(parts.values())).shape[0])
        self.reading, self.by_name = reading, by_name
        *inputs, target = parts
        self.parts = {name: channels_last(parts[name]) for name in inputs} | {target: parts[target]}

    def open(self, device: torch.device, step: int = 0) -> InMemoryData:
        """Return the data on the device."""
        if all(part.device == device for part in self.parts.values()):
            return self
        parts = {name: part.to(device) for name, part in self.parts.items()}
        return InMemoryData(self.reading, parts, by_name=self.by_name)

    @property
    def whole(self) -> Batch:
        """All examples as one batch."""
        return self.reading.arranged(self.parts, by_name=self.by_name)

    def read(self) -> Examples:
        """Return all inputs and all targets."""
        (inputs,), targets = self.whole.inputs, self.whole.targets
        return inputs, targets

    def subset(self, which: Tensor) -> InMemoryData:
        """Return the examples with these numbers, as a dataset."""
        parts = {name: part[which.to(part.device)] for name, part in self.parts.items()}
        return InMemoryData(self.reading, parts, by_name=self.by_name)

    def select(self, which: Tensor) -> Batch:
        """Return the examples with these numbers, as a batch."""
        parts = {name: part[which.to(part.device)] for name, part in self.parts.items()}
        return self.reading.arranged(parts, by_name=self.by_name)

    def shuffled(self, size: int) -> Iterator[Batch]:
        """Yield shuffled batches."""
        return map(self.select, torch.randperm(self.count).split(size))

    def in_order(self, size: int) -> Iterator[Batch]:
        """Yield batches in order."""
        for pieces in zip(*(part.split(size) for part in self.parts.values()), strict=True):
            yield self.reading.arranged(dict(zip(self.parts, pieces, strict=True)), by_name=self.by_name)


class LazySource(DataSource):
    """A :class:`LazyDataset`."""

    def __init__(self, reading: ExampleReader, lazy: LazyDataset) -> None:
        super().__init__(lazy.count)
        self.reading, self.lazy = reading, lazy

    def open(self, device: torch.device, step: int = 0) -> InMemoryData:
        """Read all examples."""
        return columns(self.reading, self.lazy.read()).open(device)

    def subset(self, which: Tensor) -> LazySubset:
        """Return the examples with these numbers."""
        return LazySubset(self, which)

    def read(self) -> Examples:
        """Return all inputs and all targets."""
        return self.open(torch.device("cpu")).read()


class LazySubset(DataSource):
    """Some examples of a :class:`LazyDataset`, which is read as a whole."""

    def __init__(self, source: LazySource, which: Tensor) -> None:
        super().__init__(len(which))
        self.source, self.which = source, which

    def open(self, device: torch.device, step: int = 0) -> InMemoryData:
        """Read all examples and select."""
        return self.source.open(device, step).subset(self.which)


class BatchedData(DataSource, OpenDataset):
    """A dataset that is read batch by batch; ``raw`` yields its batches."""

    device = torch.device("cpu")
    step = 0

    def __init__(self, reading: ExampleReader, count: int) -> None:
        super().__init__(count)
        self.reading = reading

    def open(self, device: torch.device, step: int = 0) -> BatchedData:
        """Return the dataset itself."""
        opened = copy.copy(self)
        opened.device, opened.step = device, step
        return opened

    @abstractmethod
    def raw(self, size: int, *, shuffle: bool) -> Iterator[Any]:
        """Yield raw batches."""

    def shuffled(self, size: int) -> Iterator[Batch]:
        """Yield batches, shuffled unless the dataset has its own order."""
        return (self.reading.batch(moved(raw, self.device)) for raw in self.raw(size, shuffle=True))

    def in_order(self, size: int) -> Iterator[Batch]:
        """Yield batches in the dataset's order."""
        return (self.reading.batch(moved(raw, self.device)) for raw in self.raw(size, shuffle=False))


class MapStyleData(BatchedData):
    """A map-style dataset whose batches are collated when they are needed."""

    def __init__(self, reading: ExampleReader, dataset: Any, collate: Collate) -> None:
        super().__init__(reading, len(dataset))
        self.dataset, self.collate = dataset, collate

    def subset(self, which: Tensor) -> MapStyleData:
        """Return the examples with these numbers, as a dataset."""
        return MapStyleData(self.reading, Subset(self.dataset, which.tolist()), self.collate)

    def select(self, which: Tensor) -> Batch:
        """Return the examples with these numbers, as a batch."""
        return self.reading.batch(moved(self._collated(which), self.device))

    def _collated(self, which: Tensor) -> Any:
        return self.collate([self.dataset[i] for i in which.tolist()])

    def raw(self, size: int, *, shuffle: bool) -> Iterator[Any]:
        """Yield collated batches."""
        order = torch.randperm(self.count) if shuffle else torch.arange(self.count)
        return map(self._collated, order.split(size))


class DataLoaderData(BatchedData):
    """A ``DataLoader``."""

    def __init__(self, reading: ExampleReader, loader: DataLoader[Any], count: int) -> None:
        super().__init__(reading, count)
        self.loader = loader

    def raw(self, size: int, *, shuffle: bool) -> Iterator[Any]:
        """Yield the loader's batches. PyTorch's global generator seeds the loader's own."""
        if self.loader.generator is not None:
            self.loader.generator.manual_seed(int(torch.randint(1 << 62, ())))
        seen = 0
        for raw in self.loader:
            yield raw
            seen += self.reading.batch(raw).count
            if seen >= self.count:
                return


class StreamedData(BatchedData):
    """A :class:`StreamedDataset` of examples."""

    def __init__(self, reading: ExampleReader, stream: StreamedDataset, collate: Collate) -> None:
        super().__init__(reading, stream.count)
        self.source, self.collate = stream.source, collate

    def raw(self, size: int, *, shuffle: bool) -> Iterator[Any]:
        """Yield batches of the first examples, in order."""
        source: Any = self.source
        examples = islice(iter(source if is_iterable(source) else source(self.step)), self.count)
        while some := list(islice(examples, size)):
            yield self.collate(some)


def columns(reading: ExampleReader, data: Any) -> InMemoryData:
    """Convert columns to tensors of equal length."""
    parts = reading.parts(data.tensors if isinstance(data, TensorDataset) else data)
    found = {name: as_tensor(part, name) for name, part in parts.items()}
    lengths = {name: part.shape[0] if part.dim() else 0 for name, part in found.items()}
    if len(set(lengths.values())) > 1:
        counts = " and ".join(f"{count} {name.removesuffix(' 0')}" for name, count in lengths.items())
        raise DataProblemError(f"has {counts}", "Give as many inputs as targets")
    if 0 in lengths.values():
        raise DataProblemError("has no examples", "Add examples")
    return InMemoryData(reading, found, by_name=isinstance(data, Mapping))


def as_tensor(part: Any, name: str) -> Tensor:
    """Convert a part of an example, or a column, to a tensor."""
    try:
        return torch.as_tensor(part)
    except (TypeError, ValueError, RuntimeError) as error:
        what = name.removesuffix(" 0")
        if what.startswith("target") and (words := np.asarray(part)).dtype.kind == "U":
            raise DataProblemError(
                f"has {what} that are words, such as {str(words.flat[0])!r:.40}",
                "Return numbers in their place; classes are numbered from 0",
            ) from None
        raise DataProblemError(
            f"has {what} that are not numbers ({type(part).__name__}: {error})",
            "Convert them to tensors in the dataset, name other columns (inputs), or define the method collate; "
            "of TorchTask, give it inputs=… or a collate_fn",
        ) from None


def moved(value: Any, device: torch.device) -> Any:
    """Move nested tensors to a device; images become channels-last."""
    if isinstance(value, Tensor):
        return channels_last(value.to(device))
    if isinstance(value, Mapping):
        return {key: moved(part, device) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return [moved(part, device) for part in value]
    return value


def channels_last(part: Tensor) -> Tensor:
    """Convert images to the channels-last memory format, which is faster on a CPU."""
    return part.contiguous(memory_format=torch.channels_last) if part.dim() == 4 else part


def is_iterable(value: Any) -> bool:
    """Return whether a value is iterable."""
    return hasattr(value, "__iter__")


def shape(value: Any) -> str:
    """Describe the type and shape of a part of a batch."""
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} {tuple(value.shape)}"
    return type(value).__name__
