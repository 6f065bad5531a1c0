"""All algorithms by name. A new one is a file beside this one and an entry here; nothing else changes."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from spyker.protocol.fedasync import FedAsync, FedAsyncParameters
from spyker.protocol.fedavg import FedAvg, FedAvgParameters
from spyker.protocol.hierfavg import HierFAVGParameters, hierfavg
from spyker.protocol.server import Server, Setup
from spyker.protocol.spyker import Spyker, SpykerParameters
from spyker.protocol.sync_spyker import SyncSpyker


class Topology(enum.Enum):
    """Which servers an algorithm wants, and where."""

    SINGLE = "one server for all clients"
    FLAT = "one server per region, all equal"
    CLOUD = "one server per region and a cloud server above them, without clients"


@dataclass(frozen=True, slots=True)
class Algorithm:
    """What a host must know to run an algorithm."""

    title: str
    topology: Topology
    section: str
    """The section of a scenario file that holds its parameters."""
    parameters: type[Any]
    build: Callable[[int, Setup], Server]
    """Makes server number ``id``."""


ALGORITHMS: dict[str, Algorithm] = {
    "spyker": Algorithm("Spyker", Topology.FLAT, "spyker", SpykerParameters, Spyker),
    "sync-spyker": Algorithm("Sync-Spyker", Topology.FLAT, "spyker", SpykerParameters, SyncSpyker),
    "fedasync": Algorithm("FedAsync", Topology.SINGLE, "fedasync", FedAsyncParameters, FedAsync),
    "fedavg": Algorithm("FedAvg", Topology.SINGLE, "fedavg", FedAvgParameters, FedAvg),
    "hierfavg": Algorithm("HierFAVG", Topology.CLOUD, "hierfavg", HierFAVGParameters, hierfavg),
}
