"""Changes of the membership without a vote: the federation's certificate authority signs in place of the voters."""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec.structs import replace

from spyker.net.certificate_authority import Authority
from spyker.node.ed25519_keys import sign_with
from spyker.node.view_proofs import ViewProof, forced_statement

UNSIGNED = b"unsigned"


def sign_forced(proof: str, federation: str, authority: Path | None) -> str:
    """Sign a view that was not voted for.

    Args:
        proof: The view and the one before it, as the server proposes them.
        federation: Identifies the federation.
        authority: Folder with the authority's certificate and key; ``None`` in a deployment without certificates.

    Returns:
        The proof, as JSON.

    """
    asked = msgspec.json.decode(proof, type=ViewProof)
    signature = UNSIGNED
    if authority is not None:
        signature = sign_with(Authority.load(authority).key, forced_statement(federation, asked.previous, asked.view))
    return msgspec.json.encode(replace(asked, authority=signature)).decode()
