"""Datasets of clients: given, or loaded where they are first used."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from spyker.errors import UsageError
from spyker.tasks.federated_task import ClientInfo, ClientRoster, FederatedTask, describe_client

D = TypeVar("D")


@dataclass(frozen=True, slots=True)
class ClientData(Generic[D]):
    """The data of a client: for training and, if clients evaluate, for evaluation."""

    train: D
    test: D | None
    version: object = None


class ClientDatasets(Generic[D]):
    """The data of all clients, by number."""

    def __init__(self, data: Sequence[ClientData[D]]) -> None:
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def __iter__(self) -> Iterator[D]:
        return (self[k] for k in range(len(self)))

    def __getitem__(self, client: int) -> D:
        return self.of(client).train

    def of(self, client: int) -> ClientData[D]:
        """Return the data of a client."""
        return self._data[client]


@dataclass(frozen=True, slots=True)
class LocalClients:
    """A federated task and the clients whose data this process may load."""

    definition: FederatedTask
    roster: ClientRoster


def data_of(definition: FederatedTask, client: ClientInfo) -> Any:
    """Return the training data of a client; raise a ``UsageError`` if there is none."""
    data = definition.data(client)
    if data is None:
        raise UsageError("task", f"{describe_client(client)}: data() returned None", "Is `return` missing?")
    return data


class LocalDatasets(ClientDatasets[D]):
    """The data of all clients of this process, each loaded when it is first needed.

    In a federation the data of a client is loaded again when its :meth:`~FederatedTask.data_version` has changed.
    """

    def __init__(self, clients: LocalClients, load: Callable[[FederatedTask, ClientInfo], tuple[D, D | None]]) -> None:
        self.definition, self.roster, self._load = clients.definition, clients.roster, load
        self._loaded: dict[int, ClientData[D]] = {}

    def __len__(self) -> int:
        return self.roster.count

    def of(self, client: int) -> ClientData[D]:
        """Return the data of a client."""
        known = self._loaded.get(client)
        if known is not None and not self.roster.local:
            return known
        info = self.roster.client(client)
        version = self.definition.data_version(info) if self.roster.local else None
        if known is None or known.version != version:
            train, test = self._load(self.definition, info)
            known = self._loaded[client] = ClientData(train, test, version)
        return known
