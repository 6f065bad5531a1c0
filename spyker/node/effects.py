"""What a node asks of the world that drives it. All of this is data.

``session`` is whatever the world called a client's connection when it told of it, and ``receipt`` whatever it handed
over with a message.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

from spyker.node.control_messages import ControlMessage
from spyker.node.rejection import Rejection
from spyker.node.views import View
from spyker.protocol.codec import Array
from spyker.protocol.facts import Fact
from spyker.protocol.messages import ServerMessage, StartTimer, StopTimer


class WelcomeClient(NamedTuple):
    """Let a client in. ``keep`` says that its answer to the task that it holds is wanted."""

    session: Any
    keep: bool
    saved_version: int


class SendTask(NamedTuple):
    """Give a client a task; one that was not sent yet gives way to it."""

    session: Any
    task_token: bytes
    message: ServerMessage
    saved_version: int


class CloseSession(NamedTuple):
    """End a client's connection."""

    session: Any
    reason: str


class NodeStarted(NamedTuple):
    """The server begins, with so many clients: this is time zero."""

    clients: int


class WriteFact(NamedTuple):
    """Write a fact down. So many messages wait, or are in service."""

    fact: Fact
    queue: int


class ClientRejected(NamedTuple):
    """A client was refused something, and stays connected."""

    client: int
    rejection: Rejection


class Rejected(NamedTuple):
    """The event was rejected. The sender is told why, and its connection ends."""

    rejection: Rejection


class Completed(NamedTuple):
    """A message that came with a receipt has been dealt with."""

    receipt: Any


class SaveCheckpoint(NamedTuple):
    """Write a checkpoint, and say ``saved()`` when it would survive a power cut, or ``save_failed()``."""

    numbers: dict[str, Any]
    vectors: dict[str, Array]


class SendPeer(NamedTuple):
    """There is something that another server may be told now: ask ``next_for(peer)``."""

    peer: int


class SendControl(NamedTuple):
    """Say something to another server, if there is a connection; if not, it will be said again."""

    peer: int
    message: ControlMessage


class MembershipChanged(NamedTuple):
    """The servers are these now: connect to them, and to no others. Connections with ``strangers`` end."""

    view: View
    strangers: frozenset[int]


class StopProcess(NamedTuple):
    """The process must not go on, and why. It may begin anew under another lineage, if ``anew``."""

    why: str
    anew: bool


class AcknowledgePeer(NamedTuple):
    """Tell another server that the effects of its messages up to this one are saved."""

    peer: int
    sequence: int


Effect: TypeAlias = (
    WelcomeClient
    | SendTask
    | CloseSession
    | NodeStarted
    | WriteFact
    | ClientRejected
    | Rejected
    | Completed
    | SaveCheckpoint
    | SendPeer
    | SendControl
    | MembershipChanged
    | StopProcess
    | AcknowledgePeer
    | StartTimer
    | StopTimer
)
