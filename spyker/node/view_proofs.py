"""Proofs of views: each view carries the signatures of the voters that decided it.

Theory of operation
-------------------
A view is proven by the signatures of a majority of the voters of the view before it, all for the same ballot, over the
federation, that view, the ballot and the new view. A server accepts a view only with such a proof, so it never believes
one other server, and never skips an epoch. The proofs since the first view, which everybody has in the configuration,
are a chain: whoever was away, is new or is a client follows it from the last view that it knows.

The chain holds one proof for each change of the voters, and the last one. A proof is left out once its successor is
there and the voters were the same before and after it: their signatures on the successor prove that as well to
everybody who knows an earlier view with these voters.

An operator can change the membership without a vote. The federation's certificate authority then signs in place of the
voters; such a proof is valid for everybody who knows an earlier view, and is the start of the chain from then on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from spyker.node.keys import Keys, statement
from spyker.node.rejection import Rejection
from spyker.node.views import ANYBODY, Number, Text, View

BallotNumber: TypeAlias = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Signature: TypeAlias = Annotated[bytes, Meta(max_length=1 << 10)]
Endorsement: TypeAlias = Annotated[bytes, Meta(max_length=1 << 14)]
BATCH_BYTES = 1 << 19  # of proofs in one message; the receiver asks for the rest
BATCH = 1 << 10  # and this many


class Vote(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A voter's signature. If its entry in the view names no lineage, an endorsement proves the one it signs with."""

    signature: Signature
    lineage: Text = ""
    endorsement: Endorsement = b""


class SignedPromise(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A voter's promise for a ballot, with its last vote. It shows others that a proposer proposes what it must."""

    signature: Vote
    voted: BallotNumber | None = None
    view: View | None = None


class ViewProof(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A view, the one before it, and the signatures that prove it."""

    view: View
    previous: View
    ballot: BallotNumber = 0
    votes: Annotated[dict[Number, Vote], Meta(max_length=1 << 12)] = {}
    authority: Signature = b""
    """Signature of the certificate authority, for a change without a vote."""


Proofs: TypeAlias = Annotated[tuple[ViewProof, ...], Meta(max_length=BATCH)]
_encoder = msgspec.json.Encoder()


def vote_statement(federation: str, voter: int, previous: View, ballot: int, view: View) -> bytes:
    """Return what a voter signs."""
    return statement("vote", federation, voter, ballot, previous.content, view.content)


def forced_statement(federation: str, previous: View, view: View) -> bytes:
    """Return what the certificate authority signs for a change without a vote."""
    return statement("forced change", federation, previous.content, view.content)


def promise_statement(
    federation: str, voter: int, previous: View, ballot: int, voted: int | None, view: View | None
) -> bytes:
    """Return what a voter signs when it promises to ignore lower ballots, and reports its last vote."""
    last = None if view is None else view.content
    return statement("promise", federation, voter, ballot, previous.content, voted, last)


def signed(keys: Keys, voter: int, previous: View, said: bytes) -> Vote:
    """Sign a statement as a voter of a view."""
    signature = keys.sign(said)
    if previous.members[voter].lineage != ANYBODY:
        return Vote(signature)
    return Vote(signature, keys.lineage, keys.endorsement)


def is_signed(keys: Keys, lineages: Mapping[int, str], voter: int, vote: Vote, previous: View, said: bytes) -> bool:
    """Return whether a voter of a view has signed; ``lineages`` are known ones of members of the first view."""
    if voter not in previous.voters:
        return False
    lineage = previous.members[voter].lineage
    if lineage == ANYBODY:
        lineage = vote.lineage
        known = lineages.get(voter, "")
        if lineage != known and (known or not keys.endorsed(voter, lineage, vote.endorsement)):
            return False
    return keys.verify(lineage, said, vote.signature)


def cast(keys: Keys, voter: int, previous: View, ballot: int, view: View) -> Vote:
    """Sign a vote."""
    return signed(keys, voter, previous, vote_statement(keys.federation, voter, previous, ballot, view))


def is_vote(
    keys: Keys, lineages: Mapping[int, str], voter: int, vote: Vote, previous: View, ballot: int, view: View
) -> bool:
    """Return whether a voter has cast a vote."""
    said = vote_statement(keys.federation, voter, previous, ballot, view)
    return is_signed(keys, lineages, voter, vote, previous, said)


class ViewChain:
    """The proofs of the views since the first one, as far as anybody needs them."""

    def __init__(self, keys: Keys) -> None:
        self.keys = keys
        self.proofs: list[ViewProof] = []

    def follow(self, known: View, proofs: Iterable[ViewProof], lineages: Mapping[int, str]) -> list[ViewProof]:
        """Return the proofs that lead on from a known view; raise a rejection if one does not prove its view."""
        valid: list[ViewProof] = []
        for proof in proofs:
            if proof.view.epoch > known.epoch:
                self._check(known, proof, lineages)
                valid.append(proof)
                known = proof.view
        return valid

    def _check(self, known: View, proof: ViewProof, lineages: Mapping[int, str]) -> None:
        view, previous, epoch = proof.view, proof.previous, proof.view.epoch
        if not previous.is_followed_by(view):
            raise Rejection("proof", f"the members of epoch {epoch} do not follow from those of {previous.epoch}")
        if proof.authority:
            if not self.keys.authorised(forced_statement(self.keys.federation, previous, view), proof.authority):
                raise Rejection("proof", f"the certificate authority has not signed the members of epoch {epoch}")
            return
        if previous != known and (previous.epoch == known.epoch or previous.electorate != known.electorate):
            raise Rejection("proof", f"the members of epoch {epoch} do not follow from those known here")
        if not previous.decided_by(view, proof.votes):
            raise Rejection("proof", f"no majority has signed the members of epoch {epoch}")
        voters: dict[str, int] = {}
        for j, vote in proof.votes.items():
            if not is_vote(self.keys, lineages, j, vote, previous, proof.ballot, view):
                raise Rejection("proof", f"server {j} has not signed the members of epoch {epoch}")
            voters[previous.members[j].lineage or vote.lineage] = j
        if not previous.decided_by(view, voters.values()):
            raise Rejection("proof", f"no majority of different servers has signed the members of epoch {epoch}")

    def append(self, proof: ViewProof) -> None:
        """Add the proof of a view that was adopted, and leave out those that nobody needs any more."""
        if proof.authority:
            self.proofs.clear()
        elif self.proofs:
            last = self.proofs[-1]
            if not last.authority and last.previous.electorate == last.view.electorate == proof.previous.electorate:
                self.proofs.pop()
        self.proofs.append(proof)

    def since(self, epoch: int) -> tuple[ViewProof, ...]:
        """Return the proofs for a server whose last view is of this epoch: as many as fit into one message."""
        found: list[ViewProof] = []
        size = 0
        for proof in self.proofs:
            if proof.view.epoch > epoch:
                size += len(_encoder.encode(proof))
                if found and (size > BATCH_BYTES or len(found) == BATCH):
                    break
                found.append(proof)
        return tuple(found)

    def numbers(self) -> str:
        """Return the chain as a checkpoint holds it."""
        return _encoder.encode(self.proofs).decode()

    def restore(self, text: str) -> None:
        """Restore the chain from a checkpoint."""
        self.proofs = msgspec.json.decode(text, type=list[ViewProof])
