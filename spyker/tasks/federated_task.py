"""Tasks whose data stays with the clients: what a user writes once, for the emulator and for a federation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from spyker.errors import UsageError
from spyker.tasks.task import ACCURACY, Metric

if TYPE_CHECKING:
    from spyker.config.scenario import Training
    from spyker.tasks.torch_task import ExtraMetric

CLIENT_OPTIONS = "client-options"
"""Key of ``[task]`` with the options of emulated clients."""


@dataclass(frozen=True, slots=True)
class ClientInfo:
    """The client whose data a task is asked for."""

    name: str
    """Name in the federation, such as ``charite``; ``client-7`` in an emulation without names."""
    number: int
    """Number of the client, from 0. An emulated task may select the client's share of a dataset by it."""
    seed: int = 0
    """Seed for random numbers, different for each client."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Local options: those of ``spyker join``, such as ``data`` for ``--data``. They never leave the client."""


def describe_client(client: ClientInfo) -> str:
    """Return how errors name a client: ``client 7``, or ``client 7 (charite)`` if it has a name of its own."""
    own = client.name != f"client-{client.number}"
    return f"client {client.number} ({client.name})" if own else f"client {client.number}"


class FederatedTask(ABC):
    """Base class of tasks whose data stays with the clients.

    A subclass returns a model and, for one client at a time, its data. :meth:`data` runs only in the process that
    trains this client: in a federation on the client's own machine, in an emulation in a worker process. The
    constructor's arguments are the further keys of ``[task]``.

    With a PyTorch model, override :meth:`loss` and :meth:`score` if cross-entropy and accuracy do not fit. A model that
    is a dictionary of NumPy arrays needs :meth:`train` and :meth:`evaluate`.
    """

    metric: Metric = ACCURACY
    """Metric of the evaluation: name, direction and default targets."""
    also: Sequence[ExtraMetric] = ()
    """Further metrics of a PyTorch model."""
    inputs: str | Sequence[str] | None = None
    """Names of the input columns, for data in dictionaries."""
    target: str | None = None
    """Name of the target column, for data in dictionaries."""
    personal: Sequence[str] = ()
    """Patterns of the names of parameters that stay with each client, such as ``head.*``. ``buffers`` means all buffers
    and the weights and biases of BatchNorm layers. ``training.personal`` of a scenario takes precedence."""

    @abstractmethod
    def model(self) -> Any:
        """Return the initial model: a ``torch.nn.Module``, or a dictionary of NumPy arrays."""

    @abstractmethod
    def data(self, client: ClientInfo) -> Any:
        """Return the client's training data.

        Args:
            client: name, number, seed and local options of the client.

        Returns:
            For a PyTorch model any form of data that :class:`~spyker.TorchTask` accepts, such as a pair of arrays; for
            other models any object with a length.

        """

    def test(self) -> Any:
        """Return central test data, or ``None``. Only a process that evaluates with it calls this method."""
        return None

    def client_test(self, client: ClientInfo) -> Any:
        """Return the client's own test data; default ``None``: a part of :meth:`data` is held out."""
        return None

    def data_version(self, client: ClientInfo) -> object:
        """Return a value that changes when the client's data changes; a change is picked up before the next training.

        By default it covers size and time of change of all files and folders that the local options name.
        """
        return tuple(stamp(value) for value in client.options.values())

    def loss(self, outputs: Any, targets: Any) -> Any:
        """Return the mean loss of a batch; default: cross-entropy."""
        raise NotImplementedError

    def score(self, outputs: Any, targets: Any) -> Any:
        """Return one number per example, whose mean is the metric; default: accuracy."""
        raise NotImplementedError

    def finish(self, mean: float) -> float:
        """Return the metric of the mean score, such as the exponential for a perplexity; default: the mean itself."""
        return mean

    def collate(self, examples: list[Any]) -> Any:
        """Return a batch of a list of examples. If it is not defined, the data is stacked and kept in memory."""
        raise NotImplementedError

    def train(self, model: Any, data: Any, *, rate: float, seed: int, training: Training) -> Any:
        """Train a model of NumPy arrays.

        Args:
            model: the received model, a dictionary of arrays. It may be changed in place.
            data: what :meth:`data` returned.
            rate: learning rate.
            seed: seed of this training.
            training: the settings of ``[training]``.

        Returns:
            The trained model, a dictionary of arrays with the same names and shapes.

        """
        raise NotImplementedError

    def evaluate(self, model: Any, data: Any) -> float | Mapping[str, float]:
        """Return the metric of a model of NumPy arrays on test data."""
        raise NotImplementedError

    @classmethod
    def overrides(cls, name: str) -> bool:
        """Return whether a subclass overrides a method."""
        return getattr(cls, name) is not getattr(FederatedTask, name)


def stamp(path: str) -> tuple[int, int] | None:
    """Return size and time of change of a file or folder; ``None`` if there is none."""
    try:
        found = Path(path).stat()
    except (OSError, ValueError):
        return None
    return found.st_size, found.st_mtime_ns


@dataclass(frozen=True, slots=True)
class ClientRoster:
    """The clients whose data a process may load.

    An emulation has all of them, with ``names`` and with ``options`` in which ``{name}`` and ``{number}`` are replaced.
    A process of a federation has only its ``own``.
    """

    count: int
    seed: int
    names: Sequence[str] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    own: Mapping[int, ClientInfo] | None = None

    @property
    def local(self) -> bool:
        """Whether the clients are those of a federation, whose data may change."""
        return self.own is not None

    def client(self, number: int) -> ClientInfo:
        """Return a client; raise a ``UsageError`` if its data is not in this process."""
        if self.own is not None:
            if number not in self.own:
                raise UsageError("task", f"client {number} is not in this process", "Its data stays with that client")
            return self.own[number]
        name = self.names[number] if number < len(self.names) else f"client-{number}"
        options = {
            key: str(value).replace("{name}", name).replace("{number}", str(number))
            for key, value in self.options.items()
        }
        return ClientInfo(name, number, client_seed(self.seed, number), options)


def client_seed(seed: int, number: int) -> int:
    """Return the seed of a client."""
    return int(np.random.SeedSequence((seed, number)).generate_state(1, np.uint32)[0])
