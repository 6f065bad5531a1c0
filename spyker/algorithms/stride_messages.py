"""The messages of Stride's servers to each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from spyker.protocol.messages import AgeOf, BootstrapState, Count, PeerMessage, Whole
from spyker.vectors import Vector


@dataclass(frozen=True, slots=True, eq=False)
class ExchangeModel(PeerMessage):
    """Where a server stands in exchange number ``bid``: an immutable snapshot, with the data points behind it."""

    latest_only = True
    weights: Vector
    momentum: Vector
    age: AgeOf
    data: Count
    bid: Count


@dataclass(frozen=True, slots=True)
class Token(PeerMessage):
    """The right to start the exchange after number ``bid``. There is one. Nobody need wait for who is ``absent``."""

    latest_only = True
    bid: Count
    absent: tuple[Whole, ...] = ()


@dataclass(frozen=True, slots=True)
class ExchangeRequest(PeerMessage):
    """In a tree: exchange number ``bid`` begins, and this server is at its ``root``."""

    latest_only = True
    bid: Count
    root: Whole


@dataclass(frozen=True, slots=True, eq=False)
class ExchangeResult(PeerMessage):
    """In a tree: where all who took part in exchange number ``bid`` stand on average."""

    latest_only = True
    weights: Vector
    momentum: Vector
    age: AgeOf
    bid: Count


@dataclass(frozen=True, slots=True, eq=False)
class StrideBootstrap(BootstrapState):
    """What a server that begins among others begins with; ``usual`` is how long answers are.

    There the rate was ``halved`` so often, and servers agree so well.
    """

    weights: Vector
    momentum: Vector
    age: AgeOf
    usual: Annotated[float, Meta(ge=0)]
    halved: Whole
    agreement: Annotated[float, Meta(ge=0, le=1)]
