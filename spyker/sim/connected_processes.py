"""Simulation of complete server processes, which crash and restart, with connections that break.

Each server is a :class:`~spyker.node.node.Node` and each client has a
:class:`~spyker.node.pending_updates.PendingUpdates`. Without faults and with instant disks the facts are byte-identical
to those of :class:`~spyker.sim.world.BareServerSimulation`: handshakes, sequence numbers, acknowledgements and control
messages have the latency of their link, use no bandwidth and wait for no model. Only the order of simultaneous events
may differ, because a node sends to its clients at once and to other servers after a checkpoint, and a bare server sends
in the order of its actions.

Connections behave like TCP: messages arrive in order, and a broken connection loses the messages in flight and is
noticed by both ends at once. A connection breaks when a process at its end is killed or its path is cut. It is
established again ``reconnect`` seconds after processes and path are back.
"""

from __future__ import annotations

import itertools
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from spyker.engines.engine import TrainJob
from spyker.node.control_messages import ControlMessage, PeerHandshake, ProcessIncarnation
from spyker.node.effects import (
    AcknowledgePeer,
    ClientRejected,
    CloseSession,
    Effect,
    MembershipChanged,
    SendControl,
    SendPeer,
    SendTask,
    StopProcess,
    TellSaved,
    WelcomeClient,
    WriteFact,
)
from spyker.node.events import (
    ClientConnected,
    ClientLeft,
    ControlReceived,
    Event,
    PeerAcknowledged,
    PeerConnected,
    PeerHelloReceived,
    PeerMessageReceived,
    RejectedByPeer,
    Resume,
    Start,
    UpdateReceived,
)
from spyker.node.inbox import NodeOptions
from spyker.node.membership import Membership
from spyker.node.node import Node
from spyker.node.node_clock import NodeClock
from spyker.node.outbox import OutboxEntry
from spyker.node.pending_updates import PendingTask, PendingUpdates
from spyker.node.rejection import Rejection
from spyker.node.task_tokens import TaskTokens
from spyker.node.views import first_view
from spyker.placement import Placement
from spyker.protocol.client import Client
from spyker.protocol.facts import UpdateApplied
from spyker.protocol.messages import ClientMessage, Leave
from spyker.protocol.server import Server
from spyker.records import ServerResumed
from spyker.sim.sim_keys import SimKeys
from spyker.sim.sim_process import SimDisk, SimProcess
from spyker.sim.world import Simulation


@dataclass(slots=True, eq=False)
class SimSession:
    """A client's connection."""

    client: int
    process: SimProcess
    welcomed: bool = False
    open: bool = True


@dataclass(slots=True, eq=False)
class SimPeerConnection:
    """A connection between servers: messages of the sender, acknowledgements of the receiver."""

    sender: SimProcess
    receiver: SimProcess
    sent: int
    """Sequence number of the last message that was sent, or that the receiver had before."""
    open: bool = True


class ProcessSimulation(Simulation):
    """Server processes, clients, and the connections between them."""

    processors: list[SimProcess]
    process_kind = SimProcess

    def __init__(
        self,
        build: Callable[[int, Mapping[int, int]], Server],
        clients: Sequence[Client],
        sizes: Callable[[int], int],
        places: Placement,
        *,
        resends: bool = True,
        **surroundings: Any,
    ) -> None:
        """Create the simulation.

        Args:
            build: makes a server, given its number and the data sizes of its first clients.
            clients: all clients.
            sizes: returns the number of data points of a client.
            places: regions of servers and clients.
            resends: whether clients send updates again that a server has lost.
            surroundings: arguments of :class:`~spyker.sim.world.Simulation`.

        """
        super().__init__(len(places.servers), len(clients), **surroundings)
        self.build, self.sizes, self.places = build, sizes, places
        self.reconnect = 1.0
        self.rules = NodeOptions(clients=len(clients), heartbeat_interval=1.0)
        self.suspect_after, self.renew_token_after = 5.0, 10.0
        self.first = first_view(places.learners, places.servers)
        self.stopped: list[tuple[int, str]] = []  # servers that stopped themselves, with the reason
        self.backups: dict[int, SimDisk] = {}
        self.disks = [SimDisk(i, seconds=0.0) for i in places.servers]
        self.processors = []
        self.pending = [PendingUpdates(client, resends=resends) for client in clients]
        self.sessions: list[SimSession | None] = [None] * len(clients)
        self.rejected: Counter[str] = Counter()
        self.stolen: dict[int, int] = {}  # clients that use the key of another one, by their number, and the other's
        self._peer_links: dict[tuple[int, int], SimPeerConnection] = {}
        self._cuts: set[tuple[int, int]] = set()  # ordered pairs of servers
        self._region_cuts: set[tuple[int, int]] = set()  # pairs of a server and a region
        self._unsaved: list[deque[UpdateApplied]] = [deque() for _ in places.servers]
        self._nonces = itertools.count()  # every process has its own, also after its disk was restored from a backup

    def start(self) -> None:
        """Start and connect all processes and clients at time 0."""
        for i in self.places.servers:
            self.processors.append(self._process(i))
            self._step(self.processors[i], Start(now=self.processors[i].now()))
            for k in self.places.clients_of(i):
                self._connect(k, None)
        self._link_all(self.places.servers, at=self.clock.now)

    def schedule(self, time: float, do: Callable[..., None], *arguments: Any) -> None:
        """Call a function at a time."""
        self.clock.at(time, lambda _a, _b: do(*arguments), None, None)

    # --- Processes ---------------------------------------------------------------------------------------------------

    def _process(self, i: int, *, new: bool = False) -> SimProcess:
        disk, clock = self.disks[i], NodeClock(self.now_at(i)())
        disk.begin_incarnation()
        membership = Membership(
            i,
            self.first,
            clock,
            keys=SimKeys(disk.lineage, i),
            incarnation=ProcessIncarnation(disk.incarnation, f"{next(self._nonces):08}"),
            former=disk.former,
            succession=disk.succession,
            new=new,
            suspect_after=self.suspect_after,
            renew_token_after=self.renew_token_after,
        )
        node = Node(
            i,
            lambda roster: self.build(i, roster),
            TaskTokens(disk.secret, disk.incarnation),
            replace(self.rules, lineage=disk.lineage, min_clients=len(self.places.clients_of(i))),
            membership=membership,
            clock=clock,
        )
        return self.process_kind(self, node, disk, self.build(i, {}))

    def restart(self, server: int, *, new: bool = False) -> None:
        """Restart a process from its last checkpoint, if there is one; ``new``: to join running servers."""
        before = self.processors[server]
        if before.alive:
            return
        checkpoint = self.disks[server].read()
        self.disks[server].joins |= new  # until a checkpoint is saved, also after another crash
        process = self.processors[server] = self._process(server, new=self.disks[server].joins and checkpoint is None)
        process.longest = before.longest
        if checkpoint is None:
            self._discard_unsaved(server, 0)
            process.step(Start(now=process.now()))
        else:
            process.step(Resume(*checkpoint, now=process.now()))
            version = process.server.version
            self.sink(self.clock.now, ServerResumed(server, version, self._discard_unsaved(server, version)), None)
        process.go_on()
        self._connect_soon(self.places.clients_of(server))
        self._link_all([server], at=self.clock.now + self.reconnect)

    def _kill(self, process: SimProcess) -> None:
        process.kill()
        clients = [session.client for session in process.node.sessions.values()]
        for session in process.node.sessions.values():
            session.open = False
        for link in self._peer_links.values():
            if process in (link.sender, link.receiver):
                link.open = False
        if process is not self.processors[process.node.id]:
            self._connect_soon(clients)  # to the other process of this server

    def now_at(self, server: int) -> Callable[[], float]:
        """Return the clock of a server."""
        return lambda: self.clock.now

    def _discard_unsaved(self, server: int, version: int) -> int:
        """Subtract the updates after ``version``, which are lost, from all counts; return their number."""
        lost = [fact for fact in self._unsaved[server] if fact.version > version]
        self._unsaved[server].clear()
        for fact in lost:
            self.updates_per_client[fact.client] -= 1
        self.updates_per_server[server] -= len(lost)
        self.updates -= len(lost)
        return len(lost)

    def _step(self, process: SimProcess, event: Event) -> None:
        """Pass an event to a process, and carry out the resulting effects."""
        process.step(event)
        process.go_on()

    def carry_out(self, process: SimProcess, effect: Effect) -> None:
        """Carry out an effect that concerns clients or other processes."""
        now, i = self.clock.now, process.node.id
        match effect:
            case SendTask(session, _, message):
                arrival = self.links.down(now, i, session.client, self._size(message))
                self.clock.at(arrival, self._task_arrives, session, effect)
            case WriteFact(fact, queue):
                if isinstance(fact, UpdateApplied):
                    self._note_unsaved(process, fact)
                self._record(fact, queue)
            case SendPeer(peer):
                self._send_outbox(i, peer)
            case AcknowledgePeer(peer, sequence):
                link = self._peer_links.get((peer, i))
                if link is not None and link.open and link.receiver is process:
                    self.clock.at(self.links.control(now, i, peer), self._acknowledged, link, sequence)
            case SendControl(peer, message):
                link = self._peer_links.get((i, peer))
                if link is not None and link.open and link.sender is process:
                    self.clock.at(self.links.control(now, i, peer), self._control_arrives, link, message)
            case MembershipChanged(_, strangers):
                for (a, b), link in self._peer_links.items():
                    if i in (a, b) and strangers & {a, b}:
                        link.open = False
                self._link_all([i], at=now + self.reconnect)
            case StopProcess(reason, anew):
                self.stopped.append((i, reason))
                self.clock.at(now, self._stop, process, anew)
            case WelcomeClient(session):
                self.clock.at(self.links.down(now, i, session.client, 0), self._welcomed, session, effect)
            case TellSaved(session):
                self.clock.at(self.links.down(now, i, session.client, 0), self._told, session, effect)
            case CloseSession(session):
                session.open = False
            case ClientRejected(_, rejection):
                self.rejected[rejection.reason] += 1

    def _stop(self, process: SimProcess, anew: bool) -> None:
        """Stop a process; with ``anew``, restart it without its outdated state."""
        i = process.node.id
        if process.alive:
            self._kill(process)
            if anew and self.processors[i] is process:
                self.disks[i].begin_anew()
                self.restart(i, new=True)

    def _note_unsaved(self, process: SimProcess, fact: UpdateApplied) -> None:
        """Remember an update that is lost if the process crashes before the next checkpoint."""
        unsaved = self._unsaved[fact.server]
        while unsaved and unsaved[0].version <= process.node.saved_version:
            unsaved.popleft()
        unsaved.append(fact)

    # --- Servers and servers -----------------------------------------------------------------------------------------

    def _link_all(self, servers: Sequence[int], at: float) -> None:
        """Connect these servers with all others, in both directions; removed servers must learn of their removal."""
        for i in range(len(self.processors)):
            for j in range(len(self.processors)):
                if i != j and (i in servers or j in servers):
                    self.clock.at(at, self._link, i, j)

    def _link(self, i: int, j: int, hello: PeerHandshake | None = None) -> None:
        """Connect a server to another, and send what the other has not received; ``hello`` may be an earlier one."""
        sender, receiver, before = self.processors[i], self.processors[j], self._peer_links.get((i, j))
        if not (sender.alive and receiver.alive) or (i, j) in self._cuts or (before is not None and before.open):
            return None
        if sender.later(self._link, i, j) or receiver.later(self._link, i, j):
            return None
        now = sender.now()
        try:
            receiver.step(PeerHelloReceived(hello or sender.node.handshake(j), b"", b"", now=receiver.now()))
        except Rejection as rejection:
            self._reject_call(sender, receiver, rejection)
        else:
            received = receiver.node.received.get(i, 0)
            try:
                sender.step(PeerConnected(j, receiver.node.handshake(i), received, now, now=now))
            except Rejection as rejection:
                self._reject_call(receiver, sender, rejection)
            else:
                sender.step(PeerAcknowledged(j, receiver.node.acknowledged.get(i, 0), now=now))
                self._peer_links[i, j] = SimPeerConnection(sender, receiver, received)
                self._send_outbox(i, j)
                return self._both_go_on(sender, receiver)
        self.clock.at(self.clock.now + self.reconnect, self._link, i, j)
        return self._both_go_on(sender, receiver)

    def _reject_call(self, process: SimProcess, by: SimProcess, rejection: Rejection) -> None:
        """Count the rejection of a process by another one, and tell the process."""
        self.rejected[rejection.reason] += 1
        said, lineage = (rejection.reason, rejection.detail), by.node.membership.lineage
        process.step(RejectedByPeer(by.node.id, *said, lineage, rejection.evidence, now=process.now()))

    def _both_go_on(self, sender: SimProcess, receiver: SimProcess) -> None:
        for process in (sender, receiver):
            if process.alive:
                process.go_on()

    def _control_arrives(self, link: SimPeerConnection, message: ControlMessage) -> None:
        if link.open and not link.receiver.later(self._control_arrives, link, message):
            receiver = link.receiver
            self._step(receiver, ControlReceived(link.sender.node.id, message, now=receiver.now()))

    def _send_outbox(self, i: int, j: int) -> None:
        link = self._peer_links.get((i, j))
        if link is None or not link.open:
            return
        while (posted := link.sender.node.next_for(j, link.sent)) is not None:
            link.sent = posted.sequence
            arrival = self.links.between(self.clock.now, i, j, self._size(posted.message))
            self.clock.at(arrival, self._peer_message_arrives, link, posted)

    def _peer_message_arrives(self, link: SimPeerConnection, posted: OutboxEntry) -> None:
        if link.open and not link.receiver.later(self._peer_message_arrives, link, posted):
            i, j, epoch = link.sender.node.id, link.receiver.node.id, link.sender.node.view.epoch
            now = link.receiver.now()
            try:
                link.receiver.step(PeerMessageReceived(i, posted.sequence, posted.message, epoch, now=now))
            except Rejection as rejection:
                self.rejected[rejection.reason] += 1
                link.open = False
                self.clock.at(self.clock.now + self.reconnect, self._link, i, j)
            link.receiver.go_on()

    def _acknowledged(self, link: SimPeerConnection, sequence: int) -> None:
        if link.open and not link.sender.later(self._acknowledged, link, sequence):
            link.sender.step(PeerAcknowledged(link.receiver.node.id, sequence, now=link.sender.now()))

    # --- Servers and clients -----------------------------------------------------------------------------------------

    def _region(self, client: int) -> int:
        return self.places.client_regions[client]

    def _connect_soon(self, clients: Any) -> None:
        for k in clients:
            self.clock.at(self.clock.now + self.reconnect, self._connect, k, None)

    def _connect(self, k: int, _b: None) -> None:
        """Connect a client to its server, if it is reachable, with its pending update."""
        home, before = self.places.homes[k], self.sessions[k]
        if home is None or (before is not None and before.open) or (home, self._region(k)) in self._region_cuts:
            return
        process = self.processors[home]
        if process.alive and not process.later(self._connect, k, None):
            session = self.sessions[k] = SimSession(k, process)
            held_tokens = tuple(self.pending[k].connect(home))
            presented = self.stolen.get(k, k)
            self._step(process, ClientConnected(presented, session, self.sizes(k), held_tokens, now=process.now()))
            self._depart(k, None)

    def _welcomed(self, session: SimSession, welcome: WelcomeClient) -> None:
        if session.open:
            session.welcomed = True
            _, keep, _, received, saved, ask, _ = welcome
            server = session.process.node.id
            self.pending[session.client].welcomed(server, keep=keep, received=received, saved=saved, ask=ask)
            self._offer(session.client)

    def _told(self, session: SimSession, effect: TellSaved) -> None:
        if session.open:
            self.pending[session.client].told(effect.saved, ask=effect.ask)
            self._offer(session.client)

    def _task_arrives(self, session: SimSession, task: SendTask) -> None:
        k = session.client
        if session.open and not self.excluded(k):
            server = session.process.node.id
            held = self.pending[k].assigned(server, task.number, task.task_token, task.message, task.saved)
            assert held.order is not None
            self._train(k, held.order, self._training_ends, (k, held))

    def _training_ends(self, trainee: tuple[int, PendingTask], job: TrainJob) -> None:
        k, held = trainee
        if self.excluded(k):
            return
        weights = self._trained(job, self.processors[held.place].server)
        if weights is None:
            arrival = self.links.up(self.clock.now, k, held.place, self._size(Leave()))
            self.clock.at(arrival, self._depart, k, None)
            return
        self.pending[k].trained(held, weights, job.examples, job.metrics, job.reported_evaluation)
        self._offer(k)

    def leave(self, client: int) -> None:
        """Remove a client, which drops its pending updates and tells its server if it is connected."""
        self.pending[client].drop()
        self._leave_server(client)

    def _leave_server(self, client: int) -> None:
        self.places.move_client(client, None)
        session, self.sessions[client] = self.sessions[client], None
        if session is not None and session.open:
            session.open = False
            presented = self.stolen.get(client, client)
            self._step(session.process, ClientLeft(presented, session, now=session.process.now()))

    def _depart(self, k: int, _b: None) -> None:
        """Remove a failed client if it is connected; otherwise this happens when it reconnects."""
        session = self.sessions[k]
        if self.excluded(k) and session is not None and session.open:
            self.leave(k)

    def _offer(self, k: int) -> None:
        """Send a client's pending update, if there is one and the client is connected."""
        session = self.sessions[k]
        if session is None or not (session.open and session.welcomed):
            return
        offered = self.pending[k].offer()
        if offered is not None:
            _, answer = offered
            arrival = self.links.up(self.clock.now, k, session.process.node.id, self._size(answer))
            self.clock.at(arrival, self._answer_arrives, session, offered)

    def _answer_arrives(self, session: SimSession, offered: tuple[bytes, ClientMessage]) -> None:
        if not session.open or session.process.later(self._answer_arrives, session, offered):
            return
        token, update = offered
        process, k = session.process, self.stolen.get(session.client, session.client)
        try:
            number = process.node.verify_token(k, token).number
            process.step(UpdateReceived(k, number, update, now=process.now()))
        except Rejection as rejection:
            self.rejected[rejection.reason] += 1
        process.go_on()
