"""Everything that nodes say to each other, and everything they ask of their driver.

Servers are numbered from 0 and so are clients; a message's base class tells which of the two its sender is. All of this
is data: frozen, and free of behaviour.

A message is a frozen dataclass, and its fields with their types are all that there is to say about it. Its form on the
wire, in a checkpoint and in the emulated world's bytes, and what a border refuses, follow from that
(:mod:`~spyker.protocol.codec`). So a new kind of message is a class like those below, wherever it stands, and the name
of that class among what a server ``receives``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, TypeAlias

from msgspec import Meta

from spyker.protocol.codec import ECHOED, PER_SERVER
from spyker.protocol.facts import Fact
from spyker.vectors import Vector

AgeOf: TypeAlias = Annotated[float, Meta(ge=0, lt=1e15)]
"""It grows by one per update; up to here that makes a difference to a double."""
Whole: TypeAlias = Annotated[int, Meta(ge=0, lt=1 << 53)]
"""Whole numbers up to here are exact in JSON and in a double."""
Count: TypeAlias = Annotated[int, Meta(ge=1, lt=1 << 53)]


class Message:
    """What a node says to another."""

    __slots__ = ()
    kind: ClassVar[str]
    """Its name on the wire, in records and in metrics; by default the class's, in kebab-case."""

    def __init_subclass__(cls) -> None:
        if "kind" not in cls.__dict__:
            cls.kind = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", cls.__name__).lower()


class ServerMessage(Message):
    """From a server to one of its clients."""

    __slots__ = ()


class ClientMessage(Message):
    """From a client to its server."""

    __slots__ = ()


class PeerMessage(Message):
    """From a server to another."""

    __slots__ = ()
    latest_only: ClassVar[bool] = False
    """Whether one that has not arrived yet is pointless once there is a newer one of its kind."""


# --- Messages between a server and its clients -----------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Model(ServerMessage):
    """Train this. The paper's (W_i, A_i, η_k)."""

    weights: Vector
    age: AgeOf
    version: Whole
    rate: Annotated[float, Meta(ge=0, lt=1e15)]


@dataclass(frozen=True, slots=True, eq=False)
class Update(ClientMessage):
    """The weights after training, with the age and version of the model it started from.

    A task may tell more: on how many ``examples`` the client has trained this time, and whatever ``metrics`` it has.
    """

    weights: Vector
    age: Annotated[float, ECHOED]
    version: Annotated[int, ECHOED]
    examples: Count | None = None
    metrics: Mapping[str, float] | None = None


@dataclass(frozen=True, slots=True)
class Join(ClientMessage):
    """Take me in. ``size`` is the number of data points the client trains on."""

    size: Count


@dataclass(frozen=True, slots=True)
class Leave(ClientMessage):
    """Do not wait for me, nor count me. A driver says it for a client that it gave up."""


# --- Messages between servers ----------------------------------------------------------------------------------


class BootstrapState(PeerMessage):
    """What a server that begins among others begins with."""

    __slots__ = ()
    latest_only = True


@dataclass(frozen=True, slots=True, eq=False)
class ModelBootstrap(BootstrapState):
    """A model to begin with."""

    weights: Vector
    age: AgeOf


@dataclass(frozen=True, slots=True)
class Age(PeerMessage):
    """An announcement of the sender's age, so that the holder of the token may start a synchronisation."""

    latest_only = True
    age: AgeOf


@dataclass(frozen=True, slots=True)
class Token(PeerMessage):
    """The right to start synchronisation number ``bid``. Exactly one exists in each ``epoch``."""

    latest_only = True
    epoch: Whole
    bid: Count
    ages: Annotated[tuple[AgeOf, ...], PER_SERVER]


@dataclass(frozen=True, slots=True, eq=False)
class PeerModel(PeerMessage):
    """A server's model for synchronisation number ``bid``: an immutable snapshot."""

    latest_only = True
    weights: Vector
    age: AgeOf
    bid: Count


@dataclass(frozen=True, slots=True, eq=False)
class EdgeModel(PeerMessage):
    """HierFAVG, edge to cloud: the edge's model and the number of data points behind it."""

    latest_only = True
    weights: Vector
    age: AgeOf
    size: Count


@dataclass(frozen=True, slots=True)
class EdgeIdle(PeerMessage):
    """HierFAVG, edge to cloud: nobody is left to train here, so do not wait for my model until one comes."""

    latest_only = True


# --- Actions: what a node asks of its driver -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ToClient:
    """Send ``message`` to a client."""

    client: int
    message: ServerMessage


@dataclass(frozen=True, slots=True)
class ToServer:
    """Send ``message`` to a server."""

    server: int
    message: ClientMessage | PeerMessage


@dataclass(frozen=True, slots=True, eq=False)
class Train:
    """Train ``weights`` of this ``age`` on the client's data; ``step`` counts its trainings and seeds this one."""

    weights: Vector
    rate: float
    step: int
    age: float = 0.0


@dataclass(frozen=True, slots=True)
class RecordFact:
    """Write this fact down."""

    fact: Fact


@dataclass(frozen=True, slots=True)
class Requeue:
    """Put these client messages back at the head of the sender's own queue, the first of them foremost."""

    messages: tuple[tuple[int, ClientMessage], ...]


@dataclass(frozen=True, slots=True)
class StartTimer:
    """Call ``expire(timer)`` in so many seconds. A timer of the same name that runs already begins anew."""

    timer: str
    seconds: float


@dataclass(frozen=True, slots=True)
class StopTimer:
    """Do not call ``expire(timer)`` any more."""

    timer: str


Action: TypeAlias = ToClient | ToServer | Train | RecordFact | Requeue | StartTimer | StopTimer
