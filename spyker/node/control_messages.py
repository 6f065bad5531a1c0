"""Control messages between server processes: heartbeats, votes on the membership, bootstrap requests.

They are not kept for servers that are unreachable, but repeated as long as they matter. They come from the network, so
their declarations bound their fields.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta

from spyker.node.rejection import Rejection
from spyker.node.views import Epoch, Number, Text, View

BallotNumber: TypeAlias = Annotated[int, Meta(ge=0, lt=1 << 53)]
Seconds: TypeAlias = Annotated[float, Meta(ge=0, lt=1e12)]


class ProcessIncarnation(msgspec.Struct, frozen=True, order=True, forbid_unknown_fields=True):
    """One process of a server. The later incarnation is valid; ties are broken by ``nonce``."""

    incarnation: Annotated[int, Meta(ge=0, lt=1 << 53)] = 0
    nonce: Text = ""


class ControlMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag=str.lower):
    """Base class of control messages."""


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
    incarnations: Annotated[dict[Number, tuple[Text, ProcessIncarnation]], Meta(max_length=1 << 12)] = {}
    """Lineages and incarnations of the other servers that the sender knows."""


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
    voted: BallotNumber | None
    view: View | None


class Accept(ControlMessage, frozen=True, forbid_unknown_fields=True):
    """Phase 2a: asks for a vote."""

    epoch: Epoch
    ballot: BallotNumber
    view: View


class Accepted(ControlMessage, frozen=True, forbid_unknown_fields=True):
    """Phase 2b: a vote."""

    epoch: Epoch
    ballot: BallotNumber


class Declined(ControlMessage, frozen=True, forbid_unknown_fields=True):
    """A refusal: the voter sees no reason for the proposal, or has promised a higher ballot."""

    epoch: Epoch
    ballot: BallotNumber
    promised: BallotNumber


class Decided(ControlMessage, frozen=True, forbid_unknown_fields=True):
    """The decided membership of an epoch."""

    view: View


class BootstrapRequest(ControlMessage, frozen=True, forbid_unknown_fields=True, tag="bootstrap-request"):
    """A new server asks for a bootstrap state."""


AnyControlMessage: TypeAlias = Heartbeat | Prepare | Promise | Accept | Accepted | Declined | Decided | BootstrapRequest
_decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(AnyControlMessage)


def to_json(message: ControlMessage | View | PeerHandshake) -> bytes:
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
    """A server's identity and view, sent when it connects to another."""

    server: Number
    lineage: Text
    incarnation: ProcessIncarnation
    checkpoints: Annotated[int, Meta(ge=0, lt=1 << 53)]
    """Number of checkpoints that its lineage has written."""
    view: View | None
    """``None``: it is not a member yet."""
    former: Text = ""
    """Its lineage before it restarted as a new member."""
    grants: bool = True
    acked: Annotated[int, Meta(ge=0, lt=1 << 53)] = 0
    """Number of the last message to the receiver that the receiver has saved."""


_handshakes = msgspec.json.Decoder(PeerHandshake)


def read_handshake(data: bytes) -> PeerHandshake:
    """Decode a handshake, or raise a rejection."""
    try:
        return _handshakes.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Rejection("malformed", f"not a handshake: {error}") from None
