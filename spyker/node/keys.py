"""The signatures of servers on what they say about the membership.

Each server has a key pair that was made with its state. Its *lineage* is the public key, so a view, which has the
lineages of all members, says whose signatures count. A member of the first view has no lineage there yet: its
*endorsement*, made with the key of its TLS certificate, proves which lineage it has.

A node signs and verifies by a :class:`Keys` object that its driver hands over. Deployed servers have
:class:`~spyker.node.ed25519_keys.Ed25519Keys`; simulated ones have keys that cost nothing and prove nothing elsewhere.
"""

from __future__ import annotations

import hashlib
from typing import Any, Protocol

import msgspec

CONTEXT = b"spyker: a server states\0"


class Keys(Protocol):
    """What a server signs with, and what it verifies others with."""

    federation: str
    """Identifies the federation. All statements contain it."""
    lineage: str
    endorsement: bytes

    def sign(self, statement: bytes) -> bytes:
        """Sign a statement as this server's lineage."""

    def verify(self, lineage: str, statement: bytes, signature: bytes) -> bool:
        """Return whether a lineage has signed a statement."""

    def endorsed(self, server: int, lineage: str, endorsement: bytes) -> bool:
        """Return whether the certificate of a server endorses a lineage."""

    def authorised(self, statement: bytes, signature: bytes) -> bool:
        """Return whether the federation's certificate authority has signed a statement."""


class NoKeys:
    """The keys of a server whose membership never changes: it signs nothing and believes nothing."""

    federation, endorsement = "", b""

    def __init__(self, lineage: str = "") -> None:
        self.lineage = lineage

    def sign(self, statement: bytes) -> bytes:
        """Return an empty signature."""
        return b""

    def verify(self, lineage: str, statement: bytes, signature: bytes) -> bool:
        """Believe nothing."""
        return False

    def endorsed(self, server: int, lineage: str, endorsement: bytes) -> bool:
        """Believe nothing."""
        return False

    def authorised(self, statement: bytes, signature: bytes) -> bool:
        """Believe nothing."""
        return False


def statement(what: str, federation: str, *parts: Any) -> bytes:
    """Return the bytes that are signed: what is stated, in which federation, and JSON values without dictionaries."""
    return CONTEXT + hashlib.sha256(msgspec.json.encode([what, federation, *parts])).digest()
