"""Seals of simulated clients: deterministic, cheap, and worth nothing outside a simulation.

They have the size of real seals and reject the same inputs, but are not encrypted.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

from spyker.privacy.fixed_point import Residues
from spyker.privacy.seals import SEED_BYTES, STATEMENT_BYTES, Opened, Sealed, SealError, Statement, unpack

SEAL_BYTES = 640  # about the size of a real one
AUTHORITY = b"the authority of a simulation"


def mask_of(seed: bytes, count: int) -> Residues:
    """Return the mask that follows from a seed."""
    numbers: npt.NDArray[np.uint64] = np.random.Philox(key=int.from_bytes(seed[:16], "little")).random_raw(
        (count + 1) // 2
    )
    return numbers.view(np.uint32)[:count]


def tag(content: bytes) -> bytes:
    """Return the placeholder of signature and authentication."""
    return hashlib.blake2b(content, key=AUTHORITY, digest_size=32).digest()


class SimSealer:
    """Seals as one client."""

    def __init__(self, seed: int, client: int, life: int = 0) -> None:
        self.seed, self.client, self.life = seed, client, life

    def knows(self, helper: int) -> bool:
        """Return true: a simulation needs no keys."""
        return True

    def seal(self, statement: Statement, count: int) -> Sealed:
        """Derive a seed from the run's seed and the statement, and return its seal and mask."""
        said = statement.pack()
        seed = hashlib.blake2b(said, key=self.seed.to_bytes(16, "little"), digest_size=SEED_BYTES).digest()
        seal = (said + seed + tag(said + seed)).ljust(SEAL_BYTES, b"\0")
        return Sealed(np.frombuffer(seal, np.uint8), mask_of(seed, count))


class SimOpener:
    """Opens seals as one server."""

    def __init__(self, server: int) -> None:
        self.server = server

    def open(self, seal: bytes) -> Opened:
        """Verify and read a seal."""
        content = seal[: STATEMENT_BYTES + SEED_BYTES]
        if len(seal) != SEAL_BYTES or seal[len(content) :].rstrip(b"\0") != tag(content).rstrip(b"\0"):
            raise SealError("the signature does not fit")
        said = unpack(content[:STATEMENT_BYTES])
        if said.helper != self.server:
            raise SealError("it is encrypted for another server")
        return Opened(said, content[STATEMENT_BYTES:])

    def mask(self, seed: bytes, count: int) -> Residues:
        """Return the mask that follows from a seed."""
        return mask_of(seed, count)
