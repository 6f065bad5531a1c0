"""What the processes of servers say to each other beside the protocol: who is there, and who shall be.

None of this is kept for somebody who is out of reach: it is said again as long as it matters. Words come from the
network, so their declarations bound them.
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
    """One life of a server process. The later one is the one that counts; of two alike, one."""

    incarnation: Annotated[int, Meta(ge=0, lt=1 << 53)] = 0
    nonce: Text = ""


class ControlMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag=str.lower):
    """Something that is said."""


class Heartbeat(ControlMessage, frozen=True, forbid_unknown_fields=True, tag="heartbeat"):
    """I am here."""

    epoch: Epoch
    sent: Seconds
    """By the sender's clock."""
    echo: Seconds | None
    """When the receiver had sent the last beat that arrived here, by its own clock."""
    grants: bool
    """Whether the sender would not vote for another epoch without telling."""
    idle: Seconds | None
    """Seconds since the sender last had the token of this epoch; nothing: it never had it."""
    checkpoints: Annotated[int, Meta(ge=0, lt=1 << 53)] = 0
    """Number of checkpoints that the sender's lineage has written."""
    incarnations: Annotated[dict[Number, tuple[Text, ProcessIncarnation]], Meta(max_length=1 << 12)] = {}
    """Lineages and incarnations of the other servers that the sender knows."""


class Prepare(ControlMessage, frozen=True, forbid_unknown_fields=True):
    """Will you vote on what follows this epoch? I would say: this."""

    epoch: Epoch
    ballot: BallotNumber
    view: View
    why: Text


class Promise(ControlMessage, frozen=True, forbid_unknown_fields=True):
    """Yes, and I shall take no part in earlier ballots. In an earlier one I voted for this."""

    epoch: Epoch
    ballot: BallotNumber
    voted: BallotNumber | None
    view: View | None


class Accept(ControlMessage, frozen=True, forbid_unknown_fields=True):
    """Vote for this."""

    epoch: Epoch
    ballot: BallotNumber
    view: View


class Accepted(ControlMessage, frozen=True, forbid_unknown_fields=True):
    """I have."""

    epoch: Epoch
    ballot: BallotNumber


class Declined(ControlMessage, frozen=True, forbid_unknown_fields=True):
    """I shall not: I see no reason, or have promised another ballot."""

    epoch: Epoch
    ballot: BallotNumber
    promised: BallotNumber


class Decided(ControlMessage, frozen=True, forbid_unknown_fields=True):
    """A vote has ended: these are the servers now."""

    view: View


class BootstrapRequest(ControlMessage, frozen=True, forbid_unknown_fields=True, tag="bootstrap-request"):
    """I am new. Give me what I need to begin."""


AnyControlMessage: TypeAlias = Heartbeat | Prepare | Promise | Accept | Accepted | Declined | Decided | BootstrapRequest
_decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(AnyControlMessage)


def to_json(message: ControlMessage | View | PeerHandshake) -> bytes:
    """As it travels."""
    return msgspec.json.encode(message)


def from_json(data: bytes) -> AnyControlMessage:
    """What somebody said, or a refusal."""
    try:
        message: AnyControlMessage = _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Rejection("malformed", f"not a word between servers: {error}") from None
    return message


class PeerHandshake(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a server says of itself when it meets another."""

    server: Number
    lineage: Text
    incarnation: ProcessIncarnation
    checkpoints: Annotated[int, Meta(ge=0, lt=1 << 53)]
    """Number of checkpoints that its lineage has written."""
    view: View | None
    """Nothing: it is new here."""
    former: Text = ""
    """The lineage that it had before it began anew."""
    grants: bool = True
    acked: Annotated[int, Meta(ge=0, lt=1 << 53)] = 0
    """The number of the last message of its to the other that the other has saved."""


_greetings = msgspec.json.Decoder(PeerHandshake)


def read_handshake(data: bytes) -> PeerHandshake:
    """A greeting that came over the wire, or a refusal."""
    try:
        return _greetings.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Rejection("malformed", f"not a greeting: {error}") from None
