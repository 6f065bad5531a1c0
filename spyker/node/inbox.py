"""What a node is told to begin with, and what waits in its queue."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from spyker.protocol.messages import ClientMessage, PeerMessage

MOST_DATA = 1 << 31  # data points of one client; in an average by size, more would silence everybody else
BEGIN, SAVE, RETRY, BEAT, ASK = "begin", "save", "retry", "beat", "ask"  # timers
AWAY, SERVERS = "away:", "server:"  # and beginnings of their names
VIEW, SUSPECTS, GIFT = "view", "suspects", "gift"  # what may change with other servers


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """How a node behaves, and what whoever comes must agree with."""

    clients: int | None = None
    """Clients are numbered from 0 up to here, if there is a limit."""
    layout: bytes = b""
    """A digest of what the numbers of a model mean."""
    learning: bytes = b""
    """A digest of what clients and servers must agree on."""
    deployment: bytes = b""
    """A digest of what servers must agree on."""
    lineage: str = ""
    """Made at random when this server's state began."""
    wait_for: int = 0
    """Begin with so many clients."""
    join_timeout: float = 60.0
    """Begin after so many seconds with those who are there, if anybody is."""
    client_timeout: float = 60.0
    """A client that stays away for so many seconds has left."""
    checkpoint_updates: int = 100
    checkpoint_seconds: float = 30.0
    save_retry: float = 1.0
    beat: float = 0.0
    """Seconds between two signs of life to the other servers; 0: none, and nobody is ever suspected."""
    most_data: int = MOST_DATA


class QueuedEvent(NamedTuple):
    """Something that waits for its turn."""

    sender: int
    message: ClientMessage | PeerMessage | None = None
    number: int = 0
    """Of the task that is answered, or of the peer's message."""
    peer: bool = False
    receipt: Any = None
    session: Any = None
    """The connection of a client that comes, whose data has so many points, and who holds this task."""
    size: int = 0
    holding: bytes | None = None
    timer: str | None = None
    """The server's own timer that has run out."""
    lineage: str = ""
    """Of the peer that sent it."""
    change: str = ""
    """Another list of servers, other suspects, or somebody who asks to be given a model."""
    again: bool = False
    """Whether it was served before, and the server wanted it back."""
