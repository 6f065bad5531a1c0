"""The state of one server process, and what a driver may ask of it; :mod:`~spyker.node.node` changes it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from spyker.node.client_presence import ClientPresence
from spyker.node.control_messages import PeerHandshake
from spyker.node.effects import Effect
from spyker.node.identity_alerts import IdentityAlerts
from spyker.node.inbox import Inbox, NodeOptions, QueuedEvent
from spyker.node.keys import NoKeys
from spyker.node.membership import Membership
from spyker.node.node_clock import NodeClock
from spyker.node.outbox import Outbox, OutboxEntry
from spyker.node.peers import NodePeers, PeerMarks
from spyker.node.rejection import Rejection
from spyker.node.status import NodeStatus, node_status
from spyker.node.task_tokens import ClientTasks, TaskToken, TaskTokens
from spyker.node.views import View, first_view
from spyker.protocol.codec import schema_of
from spyker.protocol.messages import Action, BootstrapState, Leave
from spyker.protocol.server import Server, Work


class NodeState(ABC):
    """The attributes of a :class:`~spyker.node.node.Node`, and its queries."""

    def __init__(
        self,
        id: int,
        build: Callable[[Mapping[int, int]], Server],
        task_tokens: TaskTokens,
        options: NodeOptions,
        peers: Sequence[int] = (),
        *,
        membership: Membership | None = None,
        clock: NodeClock | None = None,
    ) -> None:
        """Make a node that has not started.

        Args:
            id: Number of this server.
            build: Makes the protocol's server, given the sizes of the clients that it starts with.
            task_tokens: Issues and checks the tokens of tasks.
            options: Options of the node.
            peers: The other servers, if they never change and never fail.
            membership: What this server knows of the others, in place of ``peers``. It must use ``clock``.
            clock: Set to the time of each event. ``build`` may use it as the algorithm's clock.

        """
        self.id, self.options = id, options
        self._build, self._task_tokens = build, task_tokens
        self._clock = clock or NodeClock()
        servers = sorted({id, *peers})
        membership = membership or Membership(
            id, first_view(servers, servers), self._clock, keys=NoKeys(options.lineage)
        )
        self._effects: list[Effect] = []
        self._inbox = Inbox()
        self._presence = ClientPresence(self._clock)
        self.alerts = IdentityAlerts(id, self._clock)
        self._peers = NodePeers(
            options,
            membership,
            self._inbox,
            self._effects,
            self._presence,
            self.alerts,
            start=self._start,
            save=self._save_at_once,
        )
        self._server: Server | None = None  # not before it has started
        self._sessions: dict[int, Any] = {}
        self._unwelcomed: set[int] = set()  # clients whose connection waits in the inbox
        self._sizes: dict[int, int] = {}  # of clients that wait for the start
        self._timers: dict[str, float] = {}  # of the algorithm, those that run or wait in the inbox
        self._compute: Callable[[], list[Action]] | None = None  # the handling of the first entry of the inbox
        self._lease: tuple[int, bool] | None = None  # epoch and lease when that began
        self._void = False  # the first entry is a departure that was taken back
        self._draining = False
        self._overdue = False  # the node does not wait for clients any longer
        self._others_started = False  # another server has started while this one waits for clients
        self._awaits_bootstrap = membership.new  # it does not start without a bootstrap state
        self._saved_version = 0
        self._changed = False  # since the last checkpoint
        self._wanted = False  # a checkpoint, as soon as possible
        self._unsaved = 0  # updates
        self._client_unsaved = 1  # of one client, from which on a checkpoint is wanted and its client told of it
        self._marks: tuple[int, PeerMarks] | None = None  # version and marks of the checkpoint that is being written
        self._failed = False  # the last checkpoint could not be written, and it is not time yet to retry

    @abstractmethod
    def _start(self, bootstrap: BootstrapState | None = None) -> None:
        """Start the protocol's server."""

    @abstractmethod
    def _save_at_once(self) -> None:
        """Take a checkpoint as soon as possible."""

    # --- Queries -----------------------------------------------------------------------------------------------------

    @property
    def server(self) -> Server | None:
        """The protocol's server, once it has started."""
        return self._server

    @property
    def membership(self) -> Membership:
        """What this server knows of the others."""
        return self._peers.membership

    @property
    def view(self) -> View:
        """The present membership."""
        return self._peers.view

    @property
    def outboxes(self) -> Mapping[int, Outbox]:
        """The outboxes, per peer."""
        return MappingProxyType(self._peers.outboxes)

    @property
    def received(self) -> Mapping[int, int]:
        """Per peer, the number of the last message that waits or was handled."""
        return MappingProxyType(self._peers.received)

    @property
    def acknowledged(self) -> Mapping[int, int]:
        """Per peer, the number of the last message whose effects a checkpoint holds."""
        return MappingProxyType(self._peers.acknowledged)

    @property
    def sessions(self) -> Mapping[int, Any]:
        """The sessions of the clients that are connected."""
        return MappingProxyType(self._sessions)

    @property
    def clients(self) -> Mapping[int, ClientTasks]:
        """What is known of each client's tasks."""
        return MappingProxyType(self._task_tokens.clients)

    @property
    def saved_version(self) -> int:
        """The model's version in the last checkpoint on disk."""
        return self._saved_version

    @property
    def draining(self) -> bool:
        """Whether the process is about to end."""
        return self._draining

    @property
    def awaits_bootstrap(self) -> bool:
        """Whether the node started, or will start, from the bootstrap state of another server."""
        return self._awaits_bootstrap

    @property
    def waiting(self) -> int:
        """Number of entries in the inbox, the one in service included."""
        return len(self._inbox)

    @property
    def handling(self) -> bool:
        """Whether a message is being handled: between ``HandleNext`` and ``Handled``."""
        return self._inbox.handling

    @property
    def ready(self) -> bool:
        """Whether the next event may be ``HandleNext``."""
        return bool(self._inbox) and self._server is not None and not (self._inbox.handling or self._peers.stopped)

    @property
    def next_entry(self) -> QueuedEvent:
        """The first entry of the inbox."""
        return self._inbox.head

    @property
    def light(self) -> bool:
        """Whether handling the first entry touches no model-sized array."""
        entry = self._inbox.head
        if entry.message is None:
            return entry.timer is None and not entry.change
        arrays = schema_of(type(entry.message)).arrays
        return not arrays and not isinstance(entry.message, Leave) and self.work() is Work.NOTHING

    def work(self) -> Work:
        """Return how heavy handling the first entry is."""
        assert self._server is not None
        entry = self._inbox.head
        if entry.timer is not None:
            return self._server.work_of(entry.timer)
        if entry.message is None or self._came_back(entry):
            return Work.NOTHING
        return self._server.work(entry.sender, entry.message)

    @property
    def settled(self) -> bool:
        """Whether everything that arrived has been handled and saved."""
        return not (self._inbox or self._changed or self._marks is not None)

    def check_client(self, client: int, size: int, layout: bytes, learning: bytes) -> None:
        """Raise a rejection if a client cannot take part."""
        options = self.options
        if options.clients is not None and client >= options.clients:
            raise Rejection("mismatch", f"client {client} of {options.clients}, counted from 0")
        if layout != options.layout:
            raise Rejection("mismatch", "the layout of the weights is another one; use the same task everywhere")
        if learning != options.learning:
            raise Rejection("mismatch", "task, training, seed or algorithm differ; use the same scenario everywhere")
        if not 0 < size <= options.most_data:
            raise Rejection("mismatch", f"a client with {size:,} data points; 1 to {options.most_data:,} are allowed")

    def verify_token(self, client: int, token: bytes) -> TaskToken:
        """Return what a task's token says, or raise a rejection if no update for that task is wanted."""
        return self._task_tokens.verify(client, token)

    def handshake(self, server: int) -> PeerHandshake:
        """Return what this server says of itself to another."""
        return self._peers.handshake(server)

    def next_for(self, peer: int, after: int) -> OutboxEntry | None:
        """Return the first message for a peer after number ``after``, if a checkpoint on disk holds it."""
        return self._peers.outboxes[peer].next(after)

    def may_lead(self, now: float) -> bool:
        """Return whether this server may use the token at this time, if it has it."""
        server = self._server
        return server is not None and server.epoch == self.view.epoch and self.membership.may_lead(now)

    def status(self, now: float) -> NodeStatus:
        """Return a summary for operators."""
        return node_status(self, now)

    def _came_back(self, entry: QueuedEvent) -> bool:
        """Return whether the entry removes a client that has reconnected meanwhile."""
        return isinstance(entry.message, Leave) and not entry.requeued and entry.sender in self._sessions
