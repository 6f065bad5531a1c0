"""What the processes of servers say to each other beside the protocol: who is there, and who shall be.

None of this is kept for somebody who is out of reach: it is said again as long as it matters. Words come from the
network, so their declarations bound them.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta

from spyker.node.rejection import Refusal
from spyker.node.views import Epoch, Number, Text, View

Ballot: TypeAlias = Annotated[int, Meta(ge=0, lt=1 << 53)]
Seconds: TypeAlias = Annotated[float, Meta(ge=0, lt=1e12)]


class Life(msgspec.Struct, frozen=True, order=True, forbid_unknown_fields=True):
    """One life of a server process. The later one is the one that counts; of two alike, one."""

    incarnation: Annotated[int, Meta(ge=0, lt=1 << 53)] = 0
    nonce: Text = ""


class Word(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="word", tag=str.lower):
    """Something that is said."""


class Beat(Word, frozen=True, forbid_unknown_fields=True):
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
    saves: Annotated[int, Meta(ge=0, lt=1 << 53)] = 0
    """How many checkpoints the sender's lineage has written."""
    lives: Annotated[dict[Number, tuple[Text, Life]], Meta(max_length=1 << 12)] = {}
    """Which lineage and life of the others it knows."""


class Prepare(Word, frozen=True, forbid_unknown_fields=True):
    """Will you vote on what follows this epoch? I would say: this."""

    epoch: Epoch
    ballot: Ballot
    view: View
    why: Text


class Promise(Word, frozen=True, forbid_unknown_fields=True):
    """Yes, and I shall take no part in earlier ballots. In an earlier one I voted for this."""

    epoch: Epoch
    ballot: Ballot
    voted: Ballot | None
    view: View | None


class Accept(Word, frozen=True, forbid_unknown_fields=True):
    """Vote for this."""

    epoch: Epoch
    ballot: Ballot
    view: View


class Accepted(Word, frozen=True, forbid_unknown_fields=True):
    """I have."""

    epoch: Epoch
    ballot: Ballot


class Declined(Word, frozen=True, forbid_unknown_fields=True):
    """I shall not: I see no reason, or have promised another ballot."""

    epoch: Epoch
    ballot: Ballot
    promised: Ballot


class Decided(Word, frozen=True, forbid_unknown_fields=True):
    """A vote has ended: these are the servers now."""

    view: View


class Ask(Word, frozen=True, forbid_unknown_fields=True):
    """I am new. Give me what I need to begin."""


AnyWord: TypeAlias = Beat | Prepare | Promise | Accept | Accepted | Declined | Decided | Ask
_decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(AnyWord)


def to_json(word: Word | View | Greeting) -> bytes:
    """As it travels."""
    return msgspec.json.encode(word)


def from_json(data: bytes) -> AnyWord:
    """What somebody said, or a refusal."""
    try:
        word: AnyWord = _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refusal("malformed", f"not a word between servers: {error}") from None
    return word


class Greeting(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a server says of itself when it meets another."""

    server: Number
    lineage: Text
    life: Life
    saves: Annotated[int, Meta(ge=0, lt=1 << 53)]
    """How many checkpoints its lineage has written."""
    view: View | None
    """Nothing: it is new here."""
    former: Text = ""
    """The lineage that it had before it began anew."""
    grants: bool = True
    acked: Annotated[int, Meta(ge=0, lt=1 << 53)] = 0
    """The number of the last message of its to the other that the other has saved."""


_greetings = msgspec.json.Decoder(Greeting)


def read_greeting(data: bytes) -> Greeting:
    """A greeting that came over the wire, or a refusal."""
    try:
        return _greetings.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refusal("malformed", f"not a greeting: {error}") from None
