"""The facts that nodes state about themselves. A run record is a stream of these, each with the time it happened.

The driver adds what a node cannot know: the time ``t`` and, for an update, the length of the server's ``queue``. An
algorithm of somebody else's states facts of its own by subclassing :class:`Fact`, as the ones here do:

    @dataclass(frozen=True, slots=True)
    class Clipped(Fact):
        kind: ClassVar[str] = "clipped"
        server: int
        norm: float
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

KINDS: dict[str, type[Fact]] = {}
"""Every kind of fact that was declared, by its name in a record."""


class Fact:
    """Something that happened. Subclasses are dataclasses of numbers, texts, and lists and dictionaries of these."""

    __slots__ = ()
    kind: ClassVar[str]

    def __init_subclass__(cls) -> None:
        """Register the kind. A dataclass with slots is made twice; the second one is the class."""
        kind = cls.__dict__.get("kind")
        if "kind" not in cls.__annotations__ and kind is None:
            raise TypeError(f"{cls.__name__} has no kind. Give it one: kind: ClassVar[str] = ...")
        if taken := {"t", "queue"} & cls.__annotations__.keys():
            raise TypeError(f"{cls.__name__}.{min(taken)} is what a driver adds to a fact. Choose another name")
        if isinstance(kind, str):
            other = KINDS.get(kind, cls)
            if (other.__module__, other.__qualname__) != (cls.__module__, cls.__qualname__):
                raise TypeError(f"{cls.__name__}.kind is {kind!r}, as that of {other.__module__}.{other.__qualname__}")
            KINDS[kind] = cls


@dataclass(frozen=True, slots=True)
class UpdateApplied(Fact):
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
class AgeAnnounced(Fact):
    """A server told all others its age."""

    kind: ClassVar[str] = "announce"
    server: int
    age: float


@dataclass(frozen=True, slots=True)
class TokenArrived(Fact):
    """The token reached ``server``, which now may start synchronisation ``bid``."""

    kind: ClassVar[str] = "token"
    server: int
    bid: int


@dataclass(frozen=True, slots=True)
class SyncStarted(Fact):
    """``server`` started synchronisation ``bid``."""

    kind: ClassVar[str] = "sync"
    server: int
    bid: int


@dataclass(frozen=True, slots=True)
class EarlySyncStarted(Fact):
    """``server`` started synchronisation ``bid`` without the token; others may have started the same one."""

    kind: ClassVar[str] = "early-sync"
    server: int
    bid: int


@dataclass(frozen=True, slots=True)
class Merged(Fact):
    """``server`` merged the model of ``peer`` with weight w; ``age`` is its age afterwards."""

    kind: ClassVar[str] = "merge"
    server: int
    peer: int
    bid: int
    weight: float
    age: float


@dataclass(frozen=True, slots=True)
class RoundEnded(Fact):
    """``server`` averaged the answers of its clients: the end of its round number ``round``, counted from 1."""

    kind: ClassVar[str] = "round"
    server: int
    round: int


@dataclass(frozen=True, slots=True)
class CloudRoundEnded(Fact):
    """HierFAVG's cloud averaged the models of its edges for the ``round``-th time."""

    kind: ClassVar[str] = "cloud"
    round: int


@dataclass(frozen=True, slots=True)
class PeerSuspected(Fact):
    """``server`` has not been answered by ``peer`` for some time, and goes on without it."""

    kind: ClassVar[str] = "suspected"
    server: int
    peer: int


@dataclass(frozen=True, slots=True)
class PeerTrusted(Fact):
    """``peer`` answers ``server`` again."""

    kind: ClassVar[str] = "trusted"
    server: int
    peer: int


@dataclass(frozen=True, slots=True)
class EpochStarted(Fact):
    """For ``server`` another epoch began: the servers are these now, and there is a new token."""

    kind: ClassVar[str] = "epoch"
    server: int
    epoch: int
    members: list[int]


@dataclass(frozen=True, slots=True)
class ClientReported(Fact):
    """What came with a client's update: on how many ``examples`` it trained, if it said so, and what it measured.

    ``version`` is that of the update.
    """

    kind: ClassVar[str] = "report"
    server: int
    client: int
    version: int
    examples: int | None
    metrics: dict[str, float]


@dataclass(frozen=True, slots=True)
class RateHalved(Fact):
    """A server's first trainings went so ``far`` that they are repeated, with the learning ``rate`` that it has now."""

    kind: ClassVar[str] = "rate-halved"
    server: int
    far: float
    rate: float


@dataclass(frozen=True, slots=True)
class ModelRestored(Fact):
    """Training diverged: updates had the median ``norm``, many times that of the last good model, ``good_norm``.

    The server has restored that model and goes on with this ``gain``.
    """

    kind: ClassVar[str] = "restored"
    server: int
    norm: float
    good_norm: float
    gain: float


@dataclass(frozen=True, slots=True)
class UpdateClipped(Fact):
    """A client's answer went so ``far`` and counts only up to the ``limit``."""

    kind: ClassVar[str] = "shortened"
    server: int
    client: int
    far: float
    limit: float


@dataclass(frozen=True, slots=True)
class UpdateRejected(Fact):
    """A client's answer went so ``far``, beyond all measure, and is as if it never came."""

    kind: ClassVar[str] = "refused"
    server: int
    client: int
    far: float
    limit: float


@dataclass(frozen=True, slots=True)
class ClientQuarantined(Fact):
    """A client went too ``far``, or was ``contrary``, once too often, and is left out for some ``seconds``."""

    kind: ClassVar[str] = "quarantined"
    server: int
    client: int
    why: str
    seconds: float
