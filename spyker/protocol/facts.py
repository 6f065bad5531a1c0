"""The facts that nodes state about themselves. A run record is a stream of these, each with the time it happened.

The host adds what a node cannot know: the time ``t`` and, for an update, the length of the server's ``queue``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeAlias


@dataclass(frozen=True, slots=True)
class UpdateApplied:
    """A client's update became part of a server's model. ``rate`` is the learning rate the client gets next."""

    kind: ClassVar[str] = "update"
    server: int
    client: int
    staleness: float
    weight: float
    age: float
    version: int
    rate: float


@dataclass(frozen=True, slots=True)
class AgeAnnounced:
    """A server told all others its age."""

    kind: ClassVar[str] = "announce"
    server: int
    age: float


@dataclass(frozen=True, slots=True)
class TokenArrived:
    """The token reached ``server``, which now may start synchronisation ``bid``."""

    kind: ClassVar[str] = "token"
    server: int
    bid: int


@dataclass(frozen=True, slots=True)
class SyncStarted:
    """``server`` started synchronisation ``bid``."""

    kind: ClassVar[str] = "sync"
    server: int
    bid: int


@dataclass(frozen=True, slots=True)
class Merged:
    """``server`` merged the model of ``peer`` with weight w; ``age`` is its age afterwards."""

    kind: ClassVar[str] = "merge"
    server: int
    peer: int
    bid: int
    weight: float
    age: float


@dataclass(frozen=True, slots=True)
class RoundEnded:
    """``server`` averaged the answers of its clients: the end of its round number ``round``, counted from 1."""

    kind: ClassVar[str] = "round"
    server: int
    round: int


@dataclass(frozen=True, slots=True)
class CloudRoundEnded:
    """HierFAVG's cloud averaged the models of its edges for the ``round``-th time."""

    kind: ClassVar[str] = "cloud"
    round: int


Fact: TypeAlias = UpdateApplied | AgeAnnounced | TokenArrived | SyncStarted | Merged | RoundEnded | CloudRoundEnded
