"""The messages between Stride's servers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from msgspec import Meta

from spyker.protocol.messages import AgeOf, BootstrapState, Count, ExchangeNumber, PeerMessage, Whole
from spyker.vectors import Vector


@dataclass(frozen=True, slots=True, eq=False)
class ExchangeModel(PeerMessage):
    """A server's model and momentum in exchange number ``bid``, and its numbers of data points and clients."""

    latest_only = True
    weights: Vector
    momentum: Vector
    age: AgeOf
    data: Count
    bid: ExchangeNumber
    clients: Count = field(default=1, kw_only=True)


@dataclass(frozen=True, slots=True)
class Token(PeerMessage):
    """The right to start the exchange after number ``bid``. No server waits for those that are ``absent``."""

    latest_only = True
    is_token = True
    bid: ExchangeNumber
    absent: tuple[Whole, ...] = ()


@dataclass(frozen=True, slots=True)
class ExchangeRequest(PeerMessage):
    """In a tree: the start of exchange number ``bid``, whose root is server ``root``."""

    latest_only = True
    bid: ExchangeNumber
    root: Whole


@dataclass(frozen=True, slots=True, eq=False)
class ExchangeResult(PeerMessage):
    """In a tree: the average of all servers that took part in exchange number ``bid``."""

    latest_only = True
    weights: Vector
    momentum: Vector
    age: AgeOf
    bid: ExchangeNumber


@dataclass(frozen=True, slots=True, eq=False)
class StrideBootstrap(BootstrapState):
    """The state that a new server starts from.

    It has the median norm of updates, the number of times that the rate was halved, and the agreement of servers.
    """

    weights: Vector
    momentum: Vector
    age: AgeOf
    median_norm: Annotated[float, Meta(ge=0)]
    halved: Whole
    agreement: Annotated[float, Meta(ge=0, le=1)]
