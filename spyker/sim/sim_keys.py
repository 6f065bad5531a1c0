"""Keys of simulated servers: deterministic, cheap, and worth nothing outside a simulation.

Knowing a lineage suffices to sign for it, but each simulated server gets only the keys of its own.
"""

from __future__ import annotations

import hashlib

AUTHORITY = "the authority of a simulation"


def mac(key: str, content: bytes) -> bytes:
    """Return a keyed digest."""
    return hashlib.blake2b(content, digest_size=16, key=hashlib.blake2b(key.encode()).digest()).digest()


class SimKeys:
    """Signs as one lineage."""

    def __init__(self, lineage: str, server: int, federation: str = "simulation") -> None:
        self.lineage, self.federation = lineage, federation
        self.endorsement = mac(AUTHORITY, f"{federation} {server} {lineage}".encode())

    def sign(self, statement: bytes) -> bytes:
        """Sign a statement as this lineage."""
        return mac(self.lineage, statement)

    def verify(self, lineage: str, statement: bytes, signature: bytes) -> bool:
        """Return whether a lineage has signed a statement."""
        return signature == mac(lineage, statement)

    def endorsed(self, server: int, lineage: str, endorsement: bytes) -> bool:
        """Return whether the authority has endorsed the lineage of a server."""
        return endorsement == mac(AUTHORITY, f"{self.federation} {server} {lineage}".encode())

    def authorised(self, statement: bytes, signature: bytes) -> bool:
        """Return whether the authority has signed a statement."""
        return signature == mac(AUTHORITY, statement)
