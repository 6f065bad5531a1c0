"""The event log's format: events as bytes, in records with a length and a checksum.

A log is a sequence of records: the length of the payload and its CRC-32, four bytes each, little-endian, and the
payload. The first payload is a :class:`LogHeader`, the others are events. A process that was killed may leave an
incomplete record at the end.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import numpy as np

from spyker.errors import RecordError
from spyker.node.control_messages import AnyControlMessage, PeerHandshake, ProcessIncarnation
from spyker.node.ed25519_keys import Ed25519Keys
from spyker.node.events import ControlReceived, Event, Handled, Resume
from spyker.node.inbox import NodeOptions
from spyker.node.membership import Membership
from spyker.node.node_clock import NodeClock
from spyker.node.view_proofs import ViewProof
from spyker.node.views import Member, MembershipChange, View
from spyker.node.x25519_seals import announced_key
from spyker.protocol.codec import Array, Sizes, as_json, decode, encode, schema_of
from spyker.protocol.messages import Message

FORMAT = 2
PREFIX = struct.Struct("<II")  # length and checksum of the payload
KINDS: dict[str, type[Event]] = {kind.__name__: kind for kind in Event.__subclasses__()}
TYPES: dict[str, Any] = {
    "handshake": PeerHandshake,
    "change": MembershipChange,
    "before": Member | None,
    "proof": ViewProof,
    "evidence": AnyControlMessage | None,
}
LEFT_OUT = {"receipt", "actions", "numbers", "vectors"}  # opaque, recomputed, or in the header


class MembershipOptions(msgspec.Struct, frozen=True):
    """What a :class:`~spyker.node.membership.Membership` is made with."""

    server: int
    view: View
    incarnation: ProcessIncarnation
    former: str
    new: bool
    suspect_after: float
    renew_token_after: float
    remove_after: float | None
    federation: str = ""
    authorities: bytes = b""
    """Certificates of the federation's authorities, as PEM."""
    endorsement: bytes = b""
    succession: bytes = b""
    clients: str = ""
    certificate: str = ""
    masking: bool = False
    """Whether clients mask their updates."""

    def make(self, clock: NodeClock, secret: bytes) -> Membership:
        """Make the membership; the server's key follows from its secret."""
        return Membership(
            self.server,
            self.view,
            clock,
            keys=Ed25519Keys(secret, self.federation, self.authorities, self.endorsement),
            incarnation=self.incarnation,
            former=self.former,
            succession=self.succession,
            clients=self.clients,
            certificate=self.certificate,
            sealing=announced_key(secret) if self.masking else "",
            new=self.new,
            suspect_after=self.suspect_after,
            renew_token_after=self.renew_token_after,
            remove_after=self.remove_after,
        )


class LoggedArray(msgspec.Struct, frozen=True):
    """An array as bytes."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes

    @classmethod
    def of(cls, array: Array) -> LoggedArray:
        """Return an array as bytes."""
        return cls(array.dtype.str, array.shape, array.tobytes())

    def array(self) -> Array:
        """Return the array, read-only."""
        return np.frombuffer(self.data, np.dtype(self.dtype)).reshape(self.shape)


class LogHeader(msgspec.Struct, frozen=True):
    """The configuration of a process, and the state from which it started."""

    format: int
    version: str
    """The version of Spyker."""
    scenario: str
    """The resolved scenario, as TOML."""
    membership: MembershipOptions
    options: NodeOptions
    secret: bytes
    """The key of task tokens. It makes a log as private as a server's state."""
    started_at: float
    """Time on the process's clock at which the node was made."""
    weights: LoggedArray
    """The initial model."""
    rate: float
    """The initial learning rate."""
    buffers: int
    """Number of buffers at the end of the model."""
    numbers: bytes | None = None
    """Numbers of the checkpoint from which the process started, as JSON."""
    vectors: dict[str, LoggedArray] = {}
    client_metrics: dict[str, tuple[float, float]] = {}
    """Metrics that clients evaluate, and the limits of their values."""

    def encode(self) -> bytes:
        """Return the header as a record."""
        return record(msgspec.msgpack.encode(self))

    @classmethod
    def decode(cls, payload: bytes) -> LogHeader:
        """Read a header, or raise an error."""
        try:
            header = msgspec.msgpack.decode(payload, type=cls)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise RecordError(
                f"this is not an event log: {error}. Name a file in the folder deploy.event-log"
            ) from None
        if header.format != FORMAT:
            raise RecordError(
                f"the event log has format {header.format}, and this version of Spyker reads {FORMAT}. "
                f"Use Spyker {header.version}"
            )
        return header


def record(payload: bytes) -> bytes:
    """Return a payload with its length and checksum."""
    return PREFIX.pack(len(payload), zlib.crc32(payload)) + payload


def records(data: bytes) -> Iterator[bytes]:
    """Yield the payloads of a log, up to an incomplete record at the end.

    Raises:
        RecordError: if a record that is not the last one is damaged.

    """
    at = 0
    while at + PREFIX.size <= len(data):
        length, checksum = PREFIX.unpack_from(data, at)
        end = at + PREFIX.size + length
        payload = data[at + PREFIX.size : end]
        if end > len(data):
            return
        if zlib.crc32(payload) != checksum:
            if end == len(data):
                return
            raise RecordError(f"the event log is damaged at byte {at}. Restore it from a backup")
        yield payload
        at = end


def encode_event(event: Event) -> bytes:
    """Return an event as a record. A session is represented by its ``number``."""
    fields: dict[str, Any] = {}
    for name in event.__struct_fields__:
        value = getattr(event, name)
        if name == "session":
            fields[name] = getattr(value, "number", value)
        elif isinstance(value, Message):
            numbers, arrays = encode(value)
            fields[name] = [value.kind, as_json(numbers), [np.ascontiguousarray(array).tobytes() for array in arrays]]
        elif name not in LEFT_OUT:
            fields[name] = value
    return record(msgspec.msgpack.encode([type(event).__name__, fields]))


def decode_event(
    payload: bytes, kinds: Mapping[str, type[Message]], sizes: Sizes, resumed: tuple[Mapping[str, Any], Any] | None
) -> Event:
    """Read an event. ``Handled`` has no actions, and ``Resume`` the state that is given here."""
    name, fields = msgspec.msgpack.decode(payload)
    kind = KINDS[name]
    if kind is Handled:
        fields["actions"] = []
    elif kind is Resume:
        assert resumed is not None
        fields["numbers"], fields["vectors"] = resumed
    elif kind is ControlReceived:
        fields["message"] = msgspec.convert(fields["message"], AnyControlMessage)
    elif "message" in fields:
        said, numbers, arrays = fields["message"]
        forms = schema_of(kinds[said]).arrays
        found = [np.frombuffer(data, form.dtype) for form, data in zip(forms, arrays, strict=True)]
        fields["message"] = decode(kinds[said], numbers, found, sizes)
    for field, declared in TYPES.items():
        if field in fields:
            fields[field] = msgspec.convert(fields[field], declared)
    return kind(**fields)
