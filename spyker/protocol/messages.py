"""Everything that nodes say to each other, and everything they ask of their host.

Servers are numbered from 0 and so are clients; a message's type tells which of the two its sender is. Weights are one
contiguous float32 vector. All of this is data: frozen, and free of behaviour.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from spyker.protocol.facts import Fact
from spyker.vectors import Vector

# --- Messages between a server and its clients -----------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """Server to client: train this. The paper's (W_i, A_i, η_k)."""

    weights: Vector
    age: float
    version: int
    rate: float


@dataclass(frozen=True, slots=True, eq=False)
class Update:
    """Client to server: the weights after training, with the age and version of the model it started from.

    A task may tell more: on how many ``examples`` the client has trained this time, and whatever ``metrics`` it has.
    """

    weights: Vector
    age: float
    version: int
    examples: int | None = None
    metrics: Mapping[str, float] | None = None


@dataclass(frozen=True, slots=True)
class Join:
    """Client to server: take me in. ``size`` is the number of data points the client trains on."""

    size: int


@dataclass(frozen=True, slots=True)
class Leave:
    """Client to server: do not wait for me, nor count me. A host says it for a client that it gave up."""


# --- Messages between servers ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Age:
    """An announcement of the sender's age, so that the holder of the token may start a synchronisation."""

    age: float


@dataclass(frozen=True, slots=True)
class Token:
    """The right to start synchronisation number ``bid``. Exactly one exists in each ``epoch``."""

    epoch: int
    bid: int
    ages: tuple[float, ...]


@dataclass(frozen=True, slots=True, eq=False)
class PeerModel:
    """A server's model for synchronisation number ``bid``: an immutable snapshot."""

    weights: Vector
    age: float
    bid: int


@dataclass(frozen=True, slots=True, eq=False)
class EdgeModel:
    """HierFAVG, edge to cloud: the edge's model and the number of data points behind it."""

    weights: Vector
    age: float
    size: int


ClientMessage: TypeAlias = Update | Join | Leave
PeerMessage: TypeAlias = Age | Token | PeerModel | EdgeModel
Message: TypeAlias = Model | ClientMessage | PeerMessage

# --- Actions: what a node asks of its host -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ToClient:
    """Send ``message`` to a client."""

    client: int
    message: Model


@dataclass(frozen=True, slots=True)
class ToServer:
    """Send ``message`` to a server."""

    server: int
    message: ClientMessage | PeerMessage


@dataclass(frozen=True, slots=True, eq=False)
class Train:
    """Train ``weights`` on the client's data; ``step`` counts the client's trainings and seeds this one."""

    weights: Vector
    rate: float
    step: int


@dataclass(frozen=True, slots=True)
class Record:
    """Write this fact down."""

    fact: Fact


@dataclass(frozen=True, slots=True)
class ServeAgain:
    """Put these client messages back at the head of the sender's own queue, the first of them foremost."""

    messages: tuple[tuple[int, ClientMessage], ...]


Action: TypeAlias = ToClient | ToServer | Train | Record | ServeAgain
