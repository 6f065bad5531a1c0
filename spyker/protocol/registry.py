"""The algorithms that come with Spyker, by name. Those of others are found elsewhere: an algorithm is a class."""

from __future__ import annotations

from spyker.protocol.fedasync import FedAsync
from spyker.protocol.fedavg import FedAvg
from spyker.protocol.hierfavg import Edge
from spyker.protocol.server import Server
from spyker.protocol.spyker import Spyker
from spyker.protocol.sync_spyker import SyncSpyker

ALGORITHMS: dict[str, type[Server]] = {
    algorithm.name: algorithm for algorithm in (Spyker, SyncSpyker, FedAsync, FedAvg, Edge)
}
