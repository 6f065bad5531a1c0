"""Signatures by which two servers prove their lineages to each other when they connect.

TLS proves which number a server has. The lineage is proven by a signature over the other side's nonce, so neither a
certificate alone nor a recorded handshake is enough to speak for a member.
"""

from __future__ import annotations

import hashlib

from spyker.net.frames import PROTOCOL
from spyker.node.keys import Keys, statement

CALL, ANSWER, REFUSAL = "call", "answer", "refusal"


def peer_statement(federation: str, direction: str, sender: int, receiver: int, nonce: bytes, content: bytes) -> bytes:
    """Return what a server signs when it connects to another one, accepts its call, or refuses it."""
    digest = hashlib.sha256(content).hexdigest()
    return statement(f"peer {direction}", federation, PROTOCOL, sender, receiver, nonce.hex(), digest)


def sign_peer(keys: Keys, direction: str, sender: int, receiver: int, nonce: bytes, content: bytes) -> bytes:
    """Sign as this server's lineage."""
    return keys.sign(peer_statement(keys.federation, direction, sender, receiver, nonce, content))


def is_signed(
    keys: Keys, lineage: str, direction: str, sender: int, receiver: int, nonce: bytes, content: bytes, signature: bytes
) -> bool:
    """Return whether a lineage has signed."""
    return keys.verify(lineage, peer_statement(keys.federation, direction, sender, receiver, nonce, content), signature)


def refusal_content(reason: str, detail: str, evidence: bytes) -> bytes:
    """Return the content of a refusal."""
    return b"\0".join((reason.encode(), detail.encode(), evidence))
