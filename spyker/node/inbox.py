"""The node's options, and the inbox: the queue of everything that waits for the protocol's server."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from typing import Any, NamedTuple

from spyker.protocol.messages import ClientMessage, PeerMessage

MOST_DATA = 1 << 31  # data points of one client; how much they count is bounded by the claims of the others
BEGIN, BEGIN_EMPTY, SAVE, RETRY, HEARTBEAT, ASK = "begin", "empty", "save", "retry", "beat", "ask"  # timers of the node
AWAY, SERVERS = "away:", "server:"  # prefixes of timers: of an absent client, and of the algorithm
VIEW, SUSPECTS, BOOTSTRAP = "view", "suspects", "bootstrap"  # membership changes that wait in the inbox


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """Options of a node, and what clients and other servers must agree with."""

    clients: int | None = None
    """Number of clients, if it is limited: clients are numbered from 0."""
    layout: bytes = b""
    """Digest of the model's layout."""
    learning: bytes = b""
    """Digest of the options that clients and servers must share."""
    deployment: bytes = b""
    """Digest of the options that servers must share."""
    lineage: str = ""
    """Random identifier of this server's state."""
    min_clients: int = 0
    """Start with this many clients."""
    join_timeout: float = 60.0
    """Start after this many seconds with the clients that are connected, if there are any."""
    client_timeout: float = 60.0
    """Remove a client that has been disconnected for this many seconds."""
    checkpoint_updates: int = 100
    """Take a checkpoint after this many updates, or one for every two connected clients if that is more."""
    checkpoint_seconds: float = 30.0
    """Take a checkpoint after this many seconds."""
    save_retry: float = 1.0
    """Seconds to wait after a checkpoint could not be written."""
    heartbeat_interval: float = 0.0
    """Seconds between heartbeats; 0: none, and no server is ever suspected."""
    most_data: int = MOST_DATA
    """Limit of a client's number of data points."""
    most_booked: int | None = None
    """Number of trainings after which a client's privacy budget is spent; ``None``: servers do not know."""


class QueuedEvent(NamedTuple):
    """An entry of the inbox."""

    sender: int
    message: ClientMessage | PeerMessage | None = None
    number: int = 0
    """Number of the task that an update is for, or sequence number of a peer's message."""
    peer: bool = False
    """Whether the sender is a server."""
    receipt: Any = None
    session: Any = None
    """The connection of a client that has connected."""
    size: int = 0
    """Number of that client's data points."""
    held_tokens: tuple[bytes, ...] = ()
    """Tokens of the tasks that that client holds."""
    timer: str | None = None
    """An expired timer of the algorithm."""
    lineage: str = ""
    """Lineage of the peer that sent the message."""
    change: str = ""
    """A new view, new suspects, or a bootstrap request."""
    booked: int = 0
    """Number of an update's training in the client's privacy ledger; 0: it has none."""
    requeued: bool = False
    """Whether the server has handled the message before and asked for it again."""


class Inbox:
    """A queue whose first entry cannot be removed while it is being handled."""

    def __init__(self) -> None:
        self._entries: deque[QueuedEvent] = deque()
        self.handling = False
        """Whether the first entry is being handled."""

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def head(self) -> QueuedEvent:
        """The first entry."""
        return self._entries[0]

    @property
    def requeued(self) -> list[tuple[int, ClientMessage | PeerMessage | None]]:
        """Senders and messages that the server asked for again."""
        return [(entry.sender, entry.message) for entry in self._entries if entry.requeued]

    def append(self, entry: QueuedEvent) -> None:
        """Add an entry at the end."""
        self._entries.append(entry)

    def pop(self) -> None:
        """Remove the first entry, which has been handled."""
        self._entries.popleft()

    def requeue(self, messages: Sequence[tuple[int, Any]]) -> None:
        """Put messages before all others, in their order."""
        self._entries.extendleft(QueuedEvent(k, message, requeued=True) for k, message in reversed(messages))

    def remove_timer(self, timer: str) -> None:
        """Remove an expired timer, unless it is the first entry, which may be in service."""
        self._entries = deque(entry for n, entry in enumerate(self._entries) if n == 0 or entry.timer != timer)

    def remove_messages(self, server: int, kind: type[PeerMessage]) -> None:
        """Remove a peer's messages of one kind, because a newer one replaces them."""
        self._keep(e for e in self._entries if not (e.peer and e.sender == server and type(e.message) is kind))

    def remove_senders(self, servers: Set[int]) -> None:
        """Remove all messages of these servers."""
        self._keep(e for e in self._entries if not (e.peer and e.sender in servers))

    def _keep(self, entries: Iterable[QueuedEvent]) -> None:
        remaining = deque(entries)
        if self.handling and not (remaining and remaining[0] is self.head):
            remaining.appendleft(self.head)
        self._entries = remaining
