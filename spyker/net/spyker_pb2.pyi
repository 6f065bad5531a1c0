from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Frame(_message.Message):
    __slots__ = ("chunk", "hello", "welcome", "assignment", "update", "goodbye", "peer_hello", "peer_welcome", "peer", "ack", "control", "challenge", "peer_refusal", "member_list", "saved")
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    HELLO_FIELD_NUMBER: _ClassVar[int]
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    UPDATE_FIELD_NUMBER: _ClassVar[int]
    GOODBYE_FIELD_NUMBER: _ClassVar[int]
    PEER_HELLO_FIELD_NUMBER: _ClassVar[int]
    PEER_WELCOME_FIELD_NUMBER: _ClassVar[int]
    PEER_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    CONTROL_FIELD_NUMBER: _ClassVar[int]
    CHALLENGE_FIELD_NUMBER: _ClassVar[int]
    PEER_REFUSAL_FIELD_NUMBER: _ClassVar[int]
    MEMBER_LIST_FIELD_NUMBER: _ClassVar[int]
    SAVED_FIELD_NUMBER: _ClassVar[int]
    chunk: bytes
    hello: Hello
    welcome: Welcome
    assignment: Assignment
    update: Update
    goodbye: Goodbye
    peer_hello: PeerHello
    peer_welcome: PeerWelcome
    peer: Peer
    ack: Ack
    control: Control
    challenge: Challenge
    peer_refusal: PeerRefusal
    member_list: MemberList
    saved: Saved
    def __init__(self, chunk: _Optional[bytes] = ..., hello: _Optional[_Union[Hello, _Mapping]] = ..., welcome: _Optional[_Union[Welcome, _Mapping]] = ..., assignment: _Optional[_Union[Assignment, _Mapping]] = ..., update: _Optional[_Union[Update, _Mapping]] = ..., goodbye: _Optional[_Union[Goodbye, _Mapping]] = ..., peer_hello: _Optional[_Union[PeerHello, _Mapping]] = ..., peer_welcome: _Optional[_Union[PeerWelcome, _Mapping]] = ..., peer: _Optional[_Union[Peer, _Mapping]] = ..., ack: _Optional[_Union[Ack, _Mapping]] = ..., control: _Optional[_Union[Control, _Mapping]] = ..., challenge: _Optional[_Union[Challenge, _Mapping]] = ..., peer_refusal: _Optional[_Union[PeerRefusal, _Mapping]] = ..., member_list: _Optional[_Union[MemberList, _Mapping]] = ..., saved: _Optional[_Union[Saved, _Mapping]] = ...) -> None: ...

class Content(_message.Message):
    __slots__ = ("kind", "fields", "lengths")
    KIND_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    LENGTHS_FIELD_NUMBER: _ClassVar[int]
    kind: str
    fields: bytes
    lengths: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, kind: _Optional[str] = ..., fields: _Optional[bytes] = ..., lengths: _Optional[_Iterable[int]] = ...) -> None: ...

class Challenge(_message.Message):
    __slots__ = ("protocol", "server", "nonce")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    SERVER_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    server: int
    nonce: bytes
    def __init__(self, protocol: _Optional[int] = ..., server: _Optional[int] = ..., nonce: _Optional[bytes] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("protocol", "client", "size", "layout", "learning", "held_tokens", "certificate", "signature", "check", "members", "epoch", "booked")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    LEARNING_FIELD_NUMBER: _ClassVar[int]
    HELD_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    CHECK_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    BOOKED_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    client: int
    size: int
    layout: bytes
    learning: bytes
    held_tokens: _containers.RepeatedScalarFieldContainer[bytes]
    certificate: bytes
    signature: bytes
    check: bool
    members: bool
    epoch: int
    booked: int
    def __init__(self, protocol: _Optional[int] = ..., client: _Optional[int] = ..., size: _Optional[int] = ..., layout: _Optional[bytes] = ..., learning: _Optional[bytes] = ..., held_tokens: _Optional[_Iterable[bytes]] = ..., certificate: _Optional[bytes] = ..., signature: _Optional[bytes] = ..., check: _Optional[bool] = ..., members: _Optional[bool] = ..., epoch: _Optional[int] = ..., booked: _Optional[int] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("protocol", "server", "keep", "saved_version", "received", "saved", "ask", "booked")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    SERVER_FIELD_NUMBER: _ClassVar[int]
    KEEP_FIELD_NUMBER: _ClassVar[int]
    SAVED_VERSION_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    SAVED_FIELD_NUMBER: _ClassVar[int]
    ASK_FIELD_NUMBER: _ClassVar[int]
    BOOKED_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    server: int
    keep: bool
    saved_version: int
    received: int
    saved: int
    ask: bool
    booked: int
    def __init__(self, protocol: _Optional[int] = ..., server: _Optional[int] = ..., keep: _Optional[bool] = ..., saved_version: _Optional[int] = ..., received: _Optional[int] = ..., saved: _Optional[int] = ..., ask: _Optional[bool] = ..., booked: _Optional[int] = ...) -> None: ...

class Assignment(_message.Message):
    __slots__ = ("task_token", "content", "saved_version", "number", "saved")
    TASK_TOKEN_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    SAVED_VERSION_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    SAVED_FIELD_NUMBER: _ClassVar[int]
    task_token: bytes
    content: Content
    saved_version: int
    number: int
    saved: int
    def __init__(self, task_token: _Optional[bytes] = ..., content: _Optional[_Union[Content, _Mapping]] = ..., saved_version: _Optional[int] = ..., number: _Optional[int] = ..., saved: _Optional[int] = ...) -> None: ...

class Saved(_message.Message):
    __slots__ = ("number", "ask")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    ASK_FIELD_NUMBER: _ClassVar[int]
    number: int
    ask: bool
    def __init__(self, number: _Optional[int] = ..., ask: _Optional[bool] = ...) -> None: ...

class Update(_message.Message):
    __slots__ = ("task_token", "content", "booked")
    TASK_TOKEN_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    BOOKED_FIELD_NUMBER: _ClassVar[int]
    task_token: bytes
    content: Content
    booked: int
    def __init__(self, task_token: _Optional[bytes] = ..., content: _Optional[_Union[Content, _Mapping]] = ..., booked: _Optional[int] = ...) -> None: ...

class Goodbye(_message.Message):
    __slots__ = ("finished", "saved_version")
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    SAVED_VERSION_FIELD_NUMBER: _ClassVar[int]
    finished: bool
    saved_version: int
    def __init__(self, finished: _Optional[bool] = ..., saved_version: _Optional[int] = ...) -> None: ...

class PeerHello(_message.Message):
    __slots__ = ("protocol", "layout", "deployment", "handshake", "to", "nonce", "signature")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    DEPLOYMENT_FIELD_NUMBER: _ClassVar[int]
    HANDSHAKE_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    layout: bytes
    deployment: bytes
    handshake: bytes
    to: int
    nonce: bytes
    signature: bytes
    def __init__(self, protocol: _Optional[int] = ..., layout: _Optional[bytes] = ..., deployment: _Optional[bytes] = ..., handshake: _Optional[bytes] = ..., to: _Optional[int] = ..., nonce: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class PeerWelcome(_message.Message):
    __slots__ = ("protocol", "received", "handshake", "server", "signature")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    HANDSHAKE_FIELD_NUMBER: _ClassVar[int]
    SERVER_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    received: int
    handshake: bytes
    server: int
    signature: bytes
    def __init__(self, protocol: _Optional[int] = ..., received: _Optional[int] = ..., handshake: _Optional[bytes] = ..., server: _Optional[int] = ..., signature: _Optional[bytes] = ...) -> None: ...

class PeerRefusal(_message.Message):
    __slots__ = ("reason", "detail", "evidence", "lineage", "signature")
    REASON_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    EVIDENCE_FIELD_NUMBER: _ClassVar[int]
    LINEAGE_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    reason: str
    detail: str
    evidence: bytes
    lineage: str
    signature: bytes
    def __init__(self, reason: _Optional[str] = ..., detail: _Optional[str] = ..., evidence: _Optional[bytes] = ..., lineage: _Optional[str] = ..., signature: _Optional[bytes] = ...) -> None: ...

class MemberList(_message.Message):
    __slots__ = ("json",)
    JSON_FIELD_NUMBER: _ClassVar[int]
    json: bytes
    def __init__(self, json: _Optional[bytes] = ...) -> None: ...

class Peer(_message.Message):
    __slots__ = ("sequence", "content", "epoch")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    content: Content
    epoch: int
    def __init__(self, sequence: _Optional[int] = ..., content: _Optional[_Union[Content, _Mapping]] = ..., epoch: _Optional[int] = ...) -> None: ...

class Control(_message.Message):
    __slots__ = ("json",)
    JSON_FIELD_NUMBER: _ClassVar[int]
    json: bytes
    def __init__(self, json: _Optional[bytes] = ...) -> None: ...

class Ack(_message.Message):
    __slots__ = ("sequence",)
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    def __init__(self, sequence: _Optional[int] = ...) -> None: ...
