"""Effects: everything that a :class:`~spyker.node.node.Node` may ask of its driver. All of them are plain data.

``session`` and ``receipt`` are those of the events (:mod:`~spyker.node.events`) that the driver passed.
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
    """Welcome a client.

    ``keep`` says that the client keeps the updates that it holds, but for those up to task ``saved``, which are on
    disk. It need not send those up to task ``received``. With ``ask``, it sends the first of the others. ``booked`` is
    the highest number of trainings in its privacy ledger that this server has heard of.
    """

    session: Any
    keep: bool
    saved_version: int
    received: int = 0
    saved: int = 0
    ask: bool = False
    booked: int = 0


class SendTask(NamedTuple):
    """Send a task to a client. It replaces any unsent task."""

    session: Any
    task_token: bytes
    message: ServerMessage
    saved_version: int
    number: int = 0
    """Number of the task."""
    saved: int = 0
    """Number of the last task whose update is on disk."""


class TellSaved(NamedTuple):
    """Tell a client the last task whose update is on disk; with ``ask``, the client sends the next update it keeps."""

    session: Any
    saved: int
    ask: bool = False


class CloseSession(NamedTuple):
    """Close a client's connection."""

    session: Any
    reason: str


class NodeStarted(NamedTuple):
    """The server has started, with this many clients: time zero of its run record."""

    clients: int


class WriteFact(NamedTuple):
    """Write a fact to the run record, with the number of messages in the inbox."""

    fact: Fact
    queue: int


class ClientRejected(NamedTuple):
    """A client's task token was rejected; the client stays connected. Log and count it."""

    client: int
    rejection: Rejection


class Rejected(NamedTuple):
    """The event was rejected. The sender is told why, and its connection ends."""

    rejection: Rejection


class Completed(NamedTuple):
    """The message of an event with a receipt has been handled."""

    receipt: Any


class SaveCheckpoint(NamedTuple):
    """Write a checkpoint, then step ``CheckpointSaved`` or ``CheckpointFailed``."""

    numbers: dict[str, Any]
    vectors: dict[str, Array]


class SendPeer(NamedTuple):
    """Messages for another server may be sent now: ``next_for`` returns them."""

    peer: int


class SendControl(NamedTuple):
    """Send a control message if there is a connection. It may be lost: the node repeats what matters."""

    peer: int
    message: ControlMessage


class MembershipChanged(NamedTuple):
    """The membership has changed: connect to these servers and no others, and close connections with ``strangers``."""

    view: View
    strangers: frozenset[int]


class StopProcess(NamedTuple):
    """The process must end. With ``restart`` it may restart as a new member, under another lineage."""

    reason: str
    restart: bool


class AcknowledgePeer(NamedTuple):
    """Acknowledge a peer's messages up to this one: a checkpoint holds their effects."""

    peer: int
    sequence: int


Effect: TypeAlias = (
    WelcomeClient
    | SendTask
    | TellSaved
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
