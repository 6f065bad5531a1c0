"""Everything that an algorithm is written with.

An algorithm is a subclass of :class:`Server`: a state machine that receives messages and timers and returns actions.
It runs unchanged in the emulation and in deployments::

    import spyker
    from spyker.algorithm import Server, Update, UpdateApplied, parameter

The built-in algorithms are here to be subclassed. ``docs/tutorials/own-algorithm.md`` is the tutorial.
"""

from spyker.algorithms.fedasync import FedAsync
from spyker.algorithms.fedavg import FedAvg
from spyker.algorithms.fedbuff import FedBuff
from spyker.algorithms.hierfavg import Edge as HierFAVG
from spyker.algorithms.spyker import Spyker
from spyker.algorithms.stride import Stride
from spyker.algorithms.sync_spyker import SyncSpyker
from spyker.parameters import parameter
from spyker.placement import Topology
from spyker.protocol.buffers import buffers_once, parameters_only, without_buffers
from spyker.protocol.client import Client, DeltaClient
from spyker.protocol.facts import Fact, Merged, RoundEnded, SyncStarted, TokenArrived, UpdateApplied
from spyker.protocol.messages import (
    Action,
    BootstrapState,
    ClientMessage,
    Join,
    Leave,
    Model,
    ModelBootstrap,
    PeerMessage,
    PeerModel,
    RecordFact,
    ServerMessage,
    StartTimer,
    StopTimer,
    ToClient,
    Token,
    ToServer,
    Train,
    Update,
)
from spyker.protocol.server import Server, Setup, Work
from spyker.protocol.weights import Weights
from spyker.vectors import Vector

__all__ = [
    "Action",
    "BootstrapState",
    "Client",
    "ClientMessage",
    "DeltaClient",
    "Fact",
    "FedAsync",
    "FedAvg",
    "FedBuff",
    "HierFAVG",
    "Join",
    "Leave",
    "Merged",
    "Model",
    "ModelBootstrap",
    "PeerMessage",
    "PeerModel",
    "RecordFact",
    "RoundEnded",
    "Server",
    "ServerMessage",
    "Setup",
    "Spyker",
    "StartTimer",
    "StopTimer",
    "Stride",
    "SyncSpyker",
    "SyncStarted",
    "ToClient",
    "ToServer",
    "Token",
    "TokenArrived",
    "Topology",
    "Train",
    "Update",
    "UpdateApplied",
    "Vector",
    "Weights",
    "Work",
    "buffers_once",
    "parameter",
    "parameters_only",
    "without_buffers",
]
