"""The algorithms that come with Spyker, by name. Those of others are found elsewhere: an algorithm is a class."""

from __future__ import annotations

from spyker.protocol.asyncfeded import AsyncFedED
from spyker.protocol.fadas import FADAS
from spyker.protocol.fedasync import FedAsync
from spyker.protocol.fedasyncm import FedAsyncM
from spyker.protocol.fedavg import FedAvg
from spyker.protocol.fedavgm import FedAvgM
from spyker.protocol.fedbuff import FedBuff
from spyker.protocol.hierfavg import Edge
from spyker.protocol.hierfavgm import HierFAVGM
from spyker.protocol.server import Server
from spyker.protocol.spyker import Spyker
from spyker.protocol.stride import Stride
from spyker.protocol.sync_spyker import SyncSpyker

PAPER = (Spyker, SyncSpyker, FedAsync, FedAvg, Edge)
RIVALS = (FedBuff, FADAS, AsyncFedED, FedAsyncM, FedAvgM, HierFAVGM)
ALGORITHMS: dict[str, type[Server]] = {algorithm.name: algorithm for algorithm in (Stride, *PAPER, *RIVALS)}
OF_THE_PAPER = tuple(algorithm.name for algorithm in PAPER)
"""Those that Spyker's paper compares."""
COMPARED = (Stride.name, *OF_THE_PAPER)
"""Those that are compared unless others are named."""
