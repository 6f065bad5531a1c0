"""Seals: how a client hands the seed of a mask to a helper, through a server that must not read it.

A *seal* is a statement about one masked update, signed by the client, and the seed of its mask, encrypted to the
helper. How that is done is the business of the driver: deployed clients and servers use X25519 and Ed25519
(:mod:`spyker.net.seals`), simulated ones something that costs nothing (:mod:`spyker.sim.sim_seals`).
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from spyker.privacy.fixed_point import Residues

SEED_BYTES = 32
_STATEMENT = struct.Struct("<IIIQQddidd")


class SealError(ValueError):
    """A seal that the helper cannot accept."""


@dataclass(frozen=True, slots=True)
class Statement:
    """What a client signs about one masked update."""

    client: int
    home: int
    """The server that the update is sent to."""
    helper: int
    """The server that can open the seal."""
    life: int
    """Number of the client's process; it never falls."""
    training: int
    """Number of the client's training; it rises within a life."""
    weight: float
    """Weight of the update, at most 1."""
    largest: float
    """The number of examples whose weight is 1."""
    scale: int
    """Of the fixed point."""
    bound: float
    """The norm that the update was clipped to."""
    evaluated: float = 0.0
    """Weight of the scores that ride along; 0: there are none."""

    @property
    def serial(self) -> tuple[int, int]:
        """What rises from one update of a client to the next."""
        return self.life, self.training

    def pack(self) -> bytes:
        """Return the statement as bytes."""
        numbers = self.client, self.home, self.helper, self.life, self.training
        return _STATEMENT.pack(*numbers, self.weight, self.largest, self.scale, self.bound, self.evaluated)


STATEMENT_BYTES = _STATEMENT.size


def unpack(data: bytes) -> Statement:
    """Read a statement; raise a ``SealError`` if its values are not allowed."""
    if len(data) != STATEMENT_BYTES:
        raise SealError(f"a statement of {len(data)} bytes")
    said = Statement(*_STATEMENT.unpack(data))
    if not (0 < said.weight <= 1 and 0 < said.largest < math.inf and 0 < said.bound < math.inf):
        raise SealError(f"weight {said.weight!r} of at most {said.largest!r} examples, bound {said.bound!r}")
    if not 0 <= said.evaluated <= 1:
        raise SealError(f"scores with weight {said.evaluated!r}")
    if said.home == said.helper:
        raise SealError(f"server {said.home} is home and helper")
    return said


class Sealed(NamedTuple):
    """A seal and the mask that belongs to it."""

    seal: npt.NDArray[np.uint8]
    mask: Residues


class Opened(NamedTuple):
    """The content of a seal."""

    statement: Statement
    seed: bytes


class Sealer(Protocol):
    """What a client seals with."""

    @property
    def life(self) -> int:
        """Number of the client's process."""

    def knows(self, helper: int) -> bool:
        """Return whether this client can seal for a helper."""

    def seal(self, statement: Statement, count: int) -> Sealed:
        """Draw a seed, and return its seal and the mask of ``count`` numbers that follows from it."""


class Opener(Protocol):
    """What a helper opens seals with."""

    def open(self, seal: bytes) -> Opened:
        """Verify and decrypt a seal; raise a :class:`SealError` if that fails."""

    def mask(self, seed: bytes, count: int) -> Residues:
        """Return the mask of ``count`` numbers that follows from a seed."""
