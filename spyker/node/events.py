"""Events: everything that a driver may tell a :class:`~spyker.node.node.Node`. All of them are immutable data.

``now`` is the time of the event in seconds on the driver's clock, which never goes back. It is the only time a node
knows, so that the same events always lead to the same state.

``session`` identifies a client's connection. Two sessions are the same connection if they are equal. ``receipt`` is
opaque: the node returns it in :class:`~spyker.node.effects.Completed` when it has handled the message.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from spyker.node.control_messages import AnyControlMessage, ControlMessage, PeerHandshake
from spyker.node.view_proofs import ViewProof
from spyker.node.views import Member, MembershipChange
from spyker.protocol.codec import Array
from spyker.protocol.messages import Action, ClientMessage, PeerMessage


class Event(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Base class of all events."""

    now: float


# --- The process -----------------------------------------------------------------------------------------------------


class Start(Event, frozen=True, eq=False):
    """Start without a checkpoint. The first event of a node, unless it is :class:`Resume`."""


class Resume(Event, frozen=True, eq=False):
    """Start from the last saved checkpoint."""

    numbers: Mapping[str, Any]
    vectors: Mapping[str, Array]


class TimerFired(Event, frozen=True, eq=False):
    """A timer that the node started has expired."""

    timer: str


class Drain(Event, frozen=True, eq=False):
    """The process is about to end: timers of the algorithm are left for the next process."""


# --- Handling messages -----------------------------------------------------------------------------------------------


class HandleNext(Event, frozen=True, eq=False):
    """The first message in the inbox is handled now. Call ``node.compute()`` next; it may run in a thread."""


class Handled(Event, frozen=True, eq=False):
    """``node.compute()`` has returned these actions."""

    actions: list[Action]


# --- Checkpoints -----------------------------------------------------------------------------------------------------


class CheckpointRequested(Event, frozen=True, eq=False):
    """Take a checkpoint as soon as possible, if the state has changed since the last one."""


class CheckpointSaved(Event, frozen=True, eq=False):
    """The checkpoint is on disk and would survive a power cut."""


class CheckpointFailed(Event, frozen=True, eq=False):
    """The checkpoint could not be written."""


# --- Clients ---------------------------------------------------------------------------------------------------------


class ClientConnected(Event, frozen=True, eq=False):
    """A client that passed ``node.check_client()`` has connected."""

    client: int
    session: Any
    size: int
    """Number of data points that the client trains on."""
    held_tokens: tuple[bytes, ...] = ()
    """Tokens of the tasks that the client works on, or keeps updates for."""
    booked: int = 0
    """Number of trainings in the client's privacy ledger; 0: it has none."""


class ClientDisconnected(Event, frozen=True, eq=False):
    """A client's connection has ended. The client may reconnect."""

    client: int
    session: Any


class ClientLeft(Event, frozen=True, eq=False):
    """A client has said goodbye and will not reconnect."""

    client: int
    session: Any


class UpdateReceived(Event, frozen=True, eq=False):
    """A client's update has arrived in full, for a task whose token passed ``node.verify_token()``."""

    client: int
    number: int
    """Number of the task, from its token."""
    message: ClientMessage
    receipt: Any = None
    booked: int = 0
    """Number of this training in the client's privacy ledger; 0: it has none."""


# --- Other servers ---------------------------------------------------------------------------------------------------


class PeerHelloReceived(Event, frozen=True, eq=False):
    """Another server has called this one. Accepted unless the node answers with ``Rejected``."""

    handshake: PeerHandshake
    layout: bytes
    deployment: bytes


class PeerConnected(Event, frozen=True, eq=False):
    """Another server has accepted a call of this one."""

    server: int
    handshake: PeerHandshake
    received: int
    """Number of the last message from here that the other server has."""
    called_at: float
    """Time on the driver's clock at which the call began."""


class RejectedByPeer(Event, frozen=True, eq=False):
    """Another server has rejected a call of this one."""

    server: int
    reason: str
    detail: str
    lineage: str = ""
    """The other server's, if it has proven it for this call."""
    evidence: AnyControlMessage | None = None
    """What it has sent to prove what follows for this server."""


class PeerPortClosed(Event, frozen=True, eq=False):
    """A connection to another server was refused: its machine is there, and nobody listens at its address."""

    server: int
    called_at: float
    """When the connection was attempted, or earlier."""


class PeerMessageReceived(Event, frozen=True, eq=False):
    """A message of the protocol has arrived from another server. It may be a duplicate."""

    server: int
    sequence: int
    message: PeerMessage
    epoch: int = 0
    """The sender's epoch."""
    receipt: Any = None


class PeerAcknowledged(Event, frozen=True, eq=False):
    """A checkpoint of another server holds the effects of all messages from here up to this one."""

    server: int
    sequence: int


class ControlReceived(Event, frozen=True, eq=False):
    """A control message has arrived from another server."""

    server: int
    message: ControlMessage


# --- Operators -------------------------------------------------------------------------------------------------------


class MembershipChangeRequested(Event, frozen=True, eq=False):
    """An operator asks for a vote on a membership change."""

    change: MembershipChange
    before: Member | None
    """The member's present entry. The request is void once the entry is another one."""


class MembershipChangeForced(Event, frozen=True, eq=False):
    """An operator changes the membership without a vote, because the other servers are gone for good."""

    proof: ViewProof


class MembershipRequestsWithdrawn(Event, frozen=True, eq=False):
    """An operator withdraws all requested membership changes."""
