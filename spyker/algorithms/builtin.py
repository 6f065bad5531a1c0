"""The built-in algorithms, by name."""

from __future__ import annotations

from spyker.algorithms.fedasync import FedAsync
from spyker.algorithms.fedavg import FedAvg
from spyker.algorithms.fedbuff import FedBuff
from spyker.algorithms.hierfavg import Edge
from spyker.algorithms.spyker import Spyker
from spyker.algorithms.stride import Stride
from spyker.algorithms.sync_spyker import SyncSpyker
from spyker.protocol.server import Server

PAPER = (Spyker, SyncSpyker, FedAsync, FedAvg, Edge)
ALGORITHMS: dict[str, type[Server]] = {algorithm.name: algorithm for algorithm in (Stride, *PAPER, FedBuff)}
OF_THE_PAPER = tuple(algorithm.name for algorithm in PAPER)
"""Algorithms compared in the Spyker paper."""
COMPARED = (Stride.name, *OF_THE_PAPER)
"""Algorithms that ``spyker compare`` runs by default."""
