"""What the clients of a process share: their options, and the training, memory and servers that they use."""

from __future__ import annotations

from dataclasses import dataclass, field

from spyker.net.buffer_pool import BufferPool
from spyker.net.json_log import JsonLog
from spyker.net.known_servers import KnownServers
from spyker.net.nearest_server import ServerRanking
from spyker.net.training_thread import TrainingThread
from spyker.protocol.codec import Sizes


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """Options of the clients of a process."""

    stall: float
    """Disconnect from a server that reads nothing for this many seconds."""
    patience: float
    """Seconds for which a client tries to reconnect to its server before it tries others."""
    return_after: float
    """Seconds between checks whether a nearer server is reachable again."""
    give_up: float | None = None
    """Stop after this many seconds without any server; ``None``: never."""


@dataclass(frozen=True, slots=True, eq=False)
class ClientContext:
    """What all clients of a process share."""

    behaviour: ClientOptions
    training: TrainingThread
    ranking: ServerRanking
    buffers: BufferPool
    sizes: Sizes
    layout: bytes
    """Digest of the model's layout."""
    learning: bytes
    """Digest of the settings that clients and servers must share."""
    log: JsonLog
    servers: KnownServers
    known: set[str] = field(default_factory=set)
    """Servers that have answered, or for which a hint was logged."""
