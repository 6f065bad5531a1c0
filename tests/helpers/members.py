"""Other servers as a test plays them: their keys, handshakes and votes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spyker.node.control_messages import Announcement, PeerHandshake, ProcessIncarnation
from spyker.node.ed25519_keys import Ed25519Keys
from spyker.node.keys import Keys
from spyker.node.paxos import WIDTH
from spyker.node.view_proofs import SignedPromise, ViewProof, cast, promise_statement, signed
from spyker.node.views import View
from spyker.sim.sim_keys import SimKeys


def real_keys(name: str, federation: str = "federation") -> Ed25519Keys:
    """Keys as deployed servers have them, which follow from a name."""
    return Ed25519Keys(name.encode().ljust(32, b"."), federation)


def announced(keys: Keys, server: int, incarnation: int | ProcessIncarnation = 1, **more: Any) -> Announcement:
    """What a server says of its process."""
    life = incarnation if isinstance(incarnation, ProcessIncarnation) else ProcessIncarnation(incarnation)
    return Announcement(server, keys.lineage, life, **more).signed(keys)


def handshake(
    server: int,
    lineage: str = "",
    incarnation: int | ProcessIncarnation = 1,
    *,
    keys: Keys | None = None,
    certificate: str = "",
    checkpoints: int = 1,
    **more: Any,
) -> PeerHandshake:
    """What a server says when it connects, with keys of a simulation unless others are given."""
    keys = keys or SimKeys(lineage or f"server {server}", server)
    said = announced(keys, server, incarnation, certificate=certificate)
    return PeerHandshake(said, checkpoints, endorsement=keys.endorsement, **more)


def promised(
    previous: View, voters: Mapping[int, Keys], ballot: int, voted: int | None = None, view: View | None = None
) -> dict[int, SignedPromise]:
    """The promises of these servers for a ballot, all with the same last vote."""
    found = {}
    for j, keys in voters.items():
        statement = promise_statement(keys.federation, j, previous, ballot, voted, view)
        found[j] = SignedPromise(signed(keys, j, previous, statement), voted, view)
    return found


def proven(previous: View, view: View, voters: Mapping[int, Keys], ballot: int = WIDTH) -> ViewProof:
    """A view with the votes of these servers."""
    return ViewProof(view, previous, ballot, {j: cast(keys, j, previous, ballot, view) for j, keys in voters.items()})
