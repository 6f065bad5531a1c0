"""Messages between nodes, and actions that nodes return to their driver.

Servers are numbered from 0 and so are clients; a message's base class tells which of the two its sender is. Messages
and actions are frozen data without behaviour.

A message is a frozen dataclass. Its encoding on the wire and in checkpoints, its size in the emulator and its
validation are derived from the types of its fields (:mod:`~spyker.protocol.codec`). To add a message, declare a class
like those below, in any module, and list it in the server's ``receives``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt
from msgspec import Meta

from spyker.privacy.masked_scores import MOST_SCORES
from spyker.protocol.codec import ECHOED, PER_SERVER, MaxLength
from spyker.protocol.facts import Fact
from spyker.vectors import Vector

AgeOf: TypeAlias = Annotated[float, Meta(ge=0, lt=1e15)]
"""An age. It grows by one per update; below this limit a double represents that exactly."""
Whole: TypeAlias = Annotated[int, Meta(ge=0, lt=1 << 53)]
"""A non-negative integer that JSON and a double represent exactly."""
Count: TypeAlias = Annotated[int, Meta(ge=1, lt=1 << 53)]
ExchangeNumber: TypeAlias = Annotated[int, Meta(ge=1, le=(1 << 63) - 1)]
"""The number of an exchange. It begins with the epoch's, which has at most 31 bits."""
Scale: TypeAlias = Annotated[int, Meta(ge=-64, le=64)]
"""The binary exponent of a fixed-point number."""
Positive: TypeAlias = Annotated[float, Meta(gt=0, lt=1e30)]
MOST_EXTRAS = 160  # further numbers of a masked update


class Message:
    """Base class of messages."""

    __slots__ = ()
    kind: ClassVar[str]
    """Name on the wire, in checkpoints and in metrics; default: the class name in kebab-case."""

    def __init_subclass__(cls) -> None:
        if "kind" not in cls.__dict__:
            cls.kind = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", cls.__name__).lower()


class ServerMessage(Message):
    """A message from a server to one of its clients."""

    __slots__ = ()


class ClientMessage(Message):
    """A message from a client to its server."""

    __slots__ = ()


class PeerMessage(Message):
    """A message from a server to another server."""

    __slots__ = ()
    latest_only: ClassVar[bool] = False
    """Whether a newer message of this kind replaces an older one that has not been delivered."""
    is_token: ClassVar[bool] = False
    """Whether the receiver holds the token from then on."""


# --- Messages between a server and its clients -----------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Model(ServerMessage):
    """A model to train: the paper's (W_i, A_i, η_k)."""

    weights: Vector
    age: AgeOf
    version: Whole
    rate: Annotated[float, Meta(ge=0, lt=1e15)]


@dataclass(frozen=True, slots=True, eq=False)
class Update(ClientMessage):
    """The weights after training, with the age and version of the model that was trained.

    A task may add the number of ``examples`` of this training and ``metrics`` of its own. ``evaluation`` holds the
    metrics of the received model on the client's test data, and under ``examples`` the number of test examples.
    """

    weights: Vector
    age: Annotated[float, ECHOED]
    version: Annotated[int, ECHOED]
    examples: Count | None = None
    metrics: Mapping[str, float] | None = None
    evaluation: Mapping[str, float] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class MaskedModel(Model):
    """A model to train, whose update is to be masked. The fields are explained in :mod:`spyker.privacy.masking`."""

    helper: Whole
    """The server to seal the mask's seed for."""
    scale: Scale
    """Of the fixed-point numbers."""
    bound: Positive
    """The client clips the norm of its update to this."""
    median: Positive
    """The client says, masked, whether the norm is above this."""
    largest: Positive
    """The number of examples whose weight is 1."""
    scores: Annotated[int, Meta(ge=0, le=MOST_SCORES)] = 0
    """The number of scores that ride along."""


@dataclass(frozen=True, slots=True, eq=False)
class MaskedUpdate(ClientMessage):
    """A masked difference between the trained and the received model. Only sums of several can be opened."""

    masked: npt.NDArray[np.uint32]
    extra: Annotated[npt.NDArray[np.uint32], MaxLength(MOST_EXTRAS)]
    seal: Annotated[npt.NDArray[np.uint8], MaxLength(4096)]
    age: Annotated[float, ECHOED]
    version: Annotated[int, ECHOED]
    helper: Whole
    scale: Scale
    bound: Positive
    weight: Annotated[float, Meta(gt=0, le=1)]
    """Weight of the update: the client's examples as a share of ``largest``, at most 1."""
    largest: Positive
    evaluated: Annotated[float, Meta(ge=0, le=1)] = 0.0
    """Weight of the scores that ride along in ``extra``: the test examples as a share of ``largest``, at most 1."""
    scores: Annotated[int, Meta(ge=0, lt=1 << MOST_SCORES)] = 0
    """Which scores ride along: bits."""
    metrics: Mapping[str, float] | None = None
    evaluation: Mapping[str, float] | None = None


@dataclass(frozen=True, slots=True)
class Join(ClientMessage):
    """The client registers at the server. ``size`` is its number of data points."""

    size: Count


@dataclass(frozen=True, slots=True)
class Leave(ClientMessage):
    """The client departs. A driver also sends it for a client that it gave up."""


# --- Messages between servers ----------------------------------------------------------------------------------


class BootstrapState(PeerMessage):
    """Base class of the state that a joining server starts from."""

    __slots__ = ()
    latest_only = True


@dataclass(frozen=True, slots=True, eq=False)
class ModelBootstrap(BootstrapState):
    """The model and age that a joining server starts from."""

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
    is_token = True
    epoch: Whole
    bid: ExchangeNumber
    ages: Annotated[tuple[AgeOf, ...], PER_SERVER]


@dataclass(frozen=True, slots=True, eq=False)
class PeerModel(PeerMessage):
    """A server's model for synchronisation number ``bid``: an immutable snapshot."""

    latest_only = True
    weights: Vector
    age: AgeOf
    bid: ExchangeNumber


MOST_SEALED = 1 << 16  # updates in one sum


@dataclass(frozen=True, slots=True, eq=False)
class OpenRequest(PeerMessage):
    """Secure aggregation, home server to helper: the seals of the updates in a sum."""

    number: Count
    scale: Scale
    largest: Positive
    times: Annotated[npt.NDArray[np.uint8], MaxLength(MOST_SEALED)]
    """How often each update counts."""
    weights: Annotated[npt.NDArray[np.float64], MaxLength(MOST_SEALED)]
    bounds: Annotated[npt.NDArray[np.float64], MaxLength(MOST_SEALED)]
    lengths: Annotated[npt.NDArray[np.uint16], MaxLength(MOST_SEALED)]
    seals: Annotated[npt.NDArray[np.uint8], MaxLength(MOST_SEALED * 1024)]
    """The seals, one after the other."""
    words: Annotated[int, Meta(ge=0, le=MOST_EXTRAS)] = 0
    """How many of the further numbers belong to scores."""


@dataclass(frozen=True, slots=True, eq=False)
class MaskTotal(PeerMessage):
    """Secure aggregation, helper to home server: the sum of the masks."""

    number: Count
    masks: npt.NDArray[np.uint32]
    extra: Annotated[npt.NDArray[np.uint32], MaxLength(MOST_EXTRAS)]


@dataclass(frozen=True, slots=True)
class OpenRefused(PeerMessage):
    """Secure aggregation, helper to home server: why nothing was opened."""

    number: Count
    reason: str
    places: tuple[Whole, ...] = ()
    """Indices of the seals that are the reason."""


@dataclass(frozen=True, slots=True, eq=False)
class EdgeModel(PeerMessage):
    """HierFAVG, edge to cloud: the edge's model, and the numbers of data points and clients behind it."""

    latest_only = True
    weights: Vector
    age: AgeOf
    size: Count
    clients: Count = field(default=1, kw_only=True)


@dataclass(frozen=True, slots=True)
class EdgeIdle(PeerMessage):
    """HierFAVG, edge to cloud: the edge has no clients; the cloud does not wait for its model."""

    latest_only = True


# --- Actions that a driver performs for a node -----------------------------------------------------------------------


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
    """Train ``weights`` on the client's data. ``step`` counts the client's trainings and seeds this one."""

    weights: Vector
    rate: float
    step: int
    age: float = 0.0


@dataclass(frozen=True, slots=True)
class RecordFact:
    """Write ``fact`` to the run record."""

    fact: Fact


@dataclass(frozen=True, slots=True)
class Requeue:
    """Put these client messages back at the head of the server's queue, in this order."""

    messages: tuple[tuple[int, ClientMessage], ...]


@dataclass(frozen=True, slots=True)
class StartTimer:
    """Call ``expire(timer)`` after ``seconds``. A running timer of the same name is restarted."""

    timer: str
    seconds: float


@dataclass(frozen=True, slots=True)
class StopTimer:
    """Cancel ``timer``."""

    timer: str


Action: TypeAlias = ToClient | ToServer | Train | RecordFact | Requeue | StartTimer | StopTimer
