"""Control messages between server processes: heartbeats, votes on the membership, bootstrap requests.

They are not kept for servers that are unreachable, but repeated as long as they matter. They come from the network, so
their declarations bound their fields.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta

from spyker.node.keys import Keys, statement
from spyker.node.rejection import Rejection
from spyker.node.view_proofs import BallotNumber, Endorsement, Proofs, Signature, SignedPromise, Vote
from spyker.node.views import Epoch, Number, Text, View

Seconds: TypeAlias = Annotated[float, Meta(ge=0, lt=1e12)]
MOST_SIGHTINGS = 32  # clients in one heartbeat


class ProcessIncarnation(msgspec.Struct, frozen=True, order=True, forbid_unknown_fields=True):
    """One process of a server. The later incarnation is valid; ties are broken by ``nonce``."""

    incarnation: Annotated[int, Meta(ge=0, lt=1 << 53)] = 0
    nonce: Text = ""


class Announcement(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a server says of one of its processes, signed by its lineage. Others pass it on."""

    server: Number
    lineage: Text
    incarnation: ProcessIncarnation = ProcessIncarnation()
    clients: Text = ""
    """Address for clients; if empty, the one in their folders."""
    certificate: Text = ""
    """Fingerprint of its TLS certificate."""
    sealing: Text = ""
    """Public key for the seeds of masks, in hexadecimal; empty if clients do not mask their updates."""
    signature: Signature = b""

    def statement(self, federation: str) -> bytes:
        """Return what is signed."""
        life = self.incarnation
        parts = self.server, self.lineage, life.incarnation, life.nonce, self.clients, self.certificate, self.sealing
        return statement("announcement", federation, *parts)

    def signed(self, keys: Keys) -> Announcement:
        """Return the announcement with a signature."""
        return msgspec.structs.replace(self, signature=keys.sign(self.statement(keys.federation)))

    def genuine(self, keys: Keys) -> bool:
        """Return whether the lineage that it names has signed it."""
        return keys.verify(self.lineage, self.statement(keys.federation), self.signature)


def succession_statement(federation: str, server: int, lineage: str) -> bytes:
    """Return what the former lineage of a server signs when the server restarts as a new member."""
    return statement("succession", federation, server, lineage)


class ControlMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag=str.lower):
    """Base class of control messages."""


class ClientSighting(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """How long ago a client connected to the sender, and was seen there last."""

    client: Number
    connected: Seconds
    seen: Seconds


class Heartbeat(ControlMessage, frozen=True, forbid_unknown_fields=True, tag="heartbeat"):
    """A sign of life, and a lease."""

    epoch: Epoch
    sent: Seconds
    """Time on the sender's clock."""
    echo: Seconds | None
    """``sent`` of the last heartbeat from the receiver: a time on the receiver's clock."""
    grants: bool
    """Whether the sender grants a lease: it has promised nothing about the next epoch."""
    idle: Seconds | None
    """Seconds since the sender last held the token of this epoch; ``None``: it never did."""
    checkpoints: Annotated[int, Meta(ge=0, lt=1 << 53)] = 0
    """Number of checkpoints that the sender's lineage has written."""
    saves: bool = True
    """Whether the sender's checkpoints reach its disk."""
    announcements: Annotated[tuple[Announcement, ...], Meta(max_length=1 << 12)] = ()
    """Of the other servers that the sender knows."""
    clients: Annotated[tuple[ClientSighting, ...], Meta(max_length=MOST_SIGHTINGS)] = ()
    """Some of the clients that are connected to the sender."""


class Prepare(ControlMessage, frozen=True, forbid_unknown_fields=True):
    """Phase 1a of Paxos: asks for a promise, for a proposed successor of this epoch."""

    epoch: Epoch
    ballot: BallotNumber
    view: View
    why: Text


class Promise(ControlMessage, frozen=True, forbid_unknown_fields=True):
    """Phase 1b: a promise to ignore lower ballots, with the highest earlier vote."""

    epoch: Epoch
    ballot: BallotNumber
    promise: SignedPromise


class Accept(ControlMessage, frozen=True, forbid_unknown_fields=True):
    """Phase 2a: asks for a vote, and shows the promises of a majority."""

    epoch: Epoch
    ballot: BallotNumber
    view: View
    promises: Annotated[dict[Number, SignedPromise], Meta(max_length=1 << 12)] = {}


class Accepted(ControlMessage, frozen=True, forbid_unknown_fields=True):
    """Phase 2b: a signed vote."""

    epoch: Epoch
    ballot: BallotNumber
    vote: Vote


class Declined(ControlMessage, frozen=True, forbid_unknown_fields=True):
    """A refusal: the voter sees no reason for the proposal, or has promised a higher ballot."""

    epoch: Epoch
    ballot: BallotNumber
    promised: BallotNumber


class Decided(ControlMessage, frozen=True, forbid_unknown_fields=True):
    """The decided membership of one or more epochs, with proofs."""

    proofs: Proofs


class LaterIncarnation(ControlMessage, frozen=True, forbid_unknown_fields=True, tag="later-incarnation"):
    """Proof that a later process of a server has begun, for an earlier one."""

    announcement: Announcement


class BootstrapRequest(ControlMessage, frozen=True, forbid_unknown_fields=True, tag="bootstrap-request"):
    """A new server asks for a bootstrap state."""


AnyControlMessage: TypeAlias = (
    Heartbeat | Prepare | Promise | Accept | Accepted | Declined | Decided | LaterIncarnation | BootstrapRequest
)
_decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(AnyControlMessage)


def to_json(message: ControlMessage | View | PeerHandshake | Announcement) -> bytes:
    """Encode as JSON."""
    return msgspec.json.encode(message)


def from_json(data: bytes) -> AnyControlMessage:
    """Decode a control message, or raise a rejection."""
    try:
        message: AnyControlMessage = _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Rejection("malformed", f"not a control message: {error}") from None
    return message


class PeerHandshake(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A server's identity and the epoch that it is in, sent when it connects to another."""

    announcement: Announcement
    checkpoints: Annotated[int, Meta(ge=0, lt=1 << 53)]
    """Number of checkpoints that its lineage has written."""
    epoch: Epoch = 0
    """Epoch of the last view that it knows."""
    new: bool = False
    """Whether it is not a member yet."""
    proofs: Proofs = ()
    """Proofs of views that the receiver may not know."""
    former: Text = ""
    """Its lineage before it restarted as a new member."""
    succession: Signature = b""
    """Signature of the former lineage."""
    grants: bool = True
    acked: Annotated[int, Meta(ge=0, lt=1 << 53)] = 0
    """Number of the last message to the receiver that the receiver has saved."""
    endorsement: Endorsement = b""
    """Proof by its certificate that the lineage is its own."""

    @property
    def server(self) -> int:
        """The number of the server."""
        return self.announcement.server

    @property
    def lineage(self) -> str:
        """The lineage of the server."""
        return self.announcement.lineage

    @property
    def incarnation(self) -> ProcessIncarnation:
        """The process that sent it."""
        return self.announcement.incarnation

    def succeeds(self, keys: Keys) -> bool:
        """Return whether its lineage is signed by the one that it claims to succeed."""
        return keys.verify(
            self.former, succession_statement(keys.federation, self.server, self.lineage), self.succession
        )


_handshakes = msgspec.json.Decoder(PeerHandshake)


def read_handshake(data: bytes) -> PeerHandshake:
    """Decode a handshake, or raise a rejection."""
    try:
        return _handshakes.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Rejection("malformed", f"not a handshake: {error}") from None
