"""A stage on which a script moves whole server processes by hand: they have disks, and are killed.

A script that begins with ``nodes`` instead of ``servers`` has these commands, next to ``deliver`` and ``state``:

``nodes 2 algorithm=spyker clients=1,1 h-inter=2``
    Begin anew, with the words that ``servers`` understands. Clients come to their servers, and servers to each other.
``update client=0 weights=[1]``
    Client 0 has trained what it holds, and answers if its server is there. Otherwise it keeps the answer.
``leave client=0``, ``part client=0``, ``come client=0``
    A client says goodbye; its connection breaks; it comes back with what it holds, or to another ``server=1``.
``save 0``, ``fail 0``
    The checkpoint that server 0 began is on its disk now; or it could not be written.
``expire retry server=0``
    A timer of server 0 runs out: one of its host (``save``, ``retry``, ``away:3`` for client 3), or of its algorithm.
``crash 0``, ``restart 0``
    The process is killed: what is not on its disk is gone. A new one takes its place, and everybody comes back to it.
``cut 0-1``, ``heal 0-1``
    The connections between two servers break, and what is in flight is lost; they connect again.

``keeps for 1: …`` is a message that a server may not send yet, and ``(#3)`` the number of one that it sends.
"""

from __future__ import annotations

import json
from typing import Any

import scripted
from scripted import describe, extras_of, model_of, show, vector

from spyker.node.effects import (
    AcknowledgePeer,
    ClientRejected,
    CloseSession,
    Effect,
    Rejected,
    SaveCheckpoint,
    SendPeer,
    SendTask,
    TellSaved,
    WelcomeClient,
    WriteFact,
)
from spyker.node.events import (
    CheckpointFailed,
    CheckpointSaved,
    ClientConnected,
    ClientDisconnected,
    ClientLeft,
    Event,
    Handled,
    HandleNext,
    PeerAcknowledged,
    PeerConnected,
    PeerHelloReceived,
    PeerMessageReceived,
    Resume,
    Start,
    TimerFired,
    UpdateReceived,
)
from spyker.node.inbox import AWAY, RETRY, SERVERS, NodeOptions
from spyker.node.membership import Membership
from spyker.node.node import Node
from spyker.node.node_clock import NodeClock
from spyker.node.pending_updates import PendingUpdates
from spyker.node.rejection import Rejection
from spyker.node.task_tokens import TaskTokens
from spyker.node.views import first_view
from spyker.protocol.messages import StartTimer, StopTimer
from spyker.sim.sim_keys import SimKeys


class Connection:
    """Of a client, to one life of a server."""

    def __init__(self, client: int, server: int) -> None:
        self.client, self.server = client, server


class NodeStage(scripted.Stage):
    """Hosts, their disks, clients with what they hold, and the messages in flight."""

    def command(self, verb: str, plain: list[str], named: dict[str, str]) -> bool:
        match verb, plain:
            case "nodes", [count]:
                self.begin(int(count), **named)
            case (("save" | "fail" | "crash" | "restart"), [server]):
                getattr(self, verb)(self.number(server), **named)
            case (("cut" | "heal"), [pair]):
                getattr(self, verb)(*(self.number(server) for server in pair.split("-")), **named)
            case "expire", [timer]:
                self.expire(timer, **named)
            case (("part" | "come"), []):
                getattr(self, verb)(**named)
            case "servers" | "join", _:
                return False
            case _:
                return super().command(verb, plain, named)
        return True

    # --- commands --------------------------------------------------------------------------------------------------

    def play(self, rosters: list[dict[int, int]], build: Any) -> None:
        """Everybody is there."""
        self.build = build
        self.homes = {k: i for i, roster in enumerate(rosters) for k in roster}
        self.points = {k: size for roster in rosters for k, size in roster.items()}
        self.rules = [NodeOptions(len(self.homes), lineage=str(i), min_clients=len(r)) for i, r in enumerate(rosters)]
        self.nodes: list[Node | None] = [None] * len(rosters)
        self.lives = [0] * len(rosters)
        self.disks: list[tuple[str, dict[str, Any]] | None] = [None] * len(rosters)
        self.saving: list[SaveCheckpoint | None] = [None] * len(rosters)
        self.timers: list[set[str]] = [set() for _ in rosters]
        self.shown: dict[tuple[int, int], int] = {}  # messages that a server keeps, up to which they were shown
        self.pending = {k: PendingUpdates(self.client(k, home)) for k, home in self.homes.items()}
        self.connections: dict[int, Connection] = {}
        self.linked: dict[tuple[int, int], int] = {}  # the last message that was sent over each connection
        self.effects: list[list[Effect]] = [[] for _ in rosters]
        self.in_flight = []
        for i, roster in enumerate(rosters):
            self.trace.append(f"{self.name(i)} starts")
            self.new_life(i)
            self.tell_node(i, Start)
            for k in roster:
                self.connect(k)
            self.go_on(i)
        self.link_all()

    def update(self, *, client: str, weights: str) -> None:
        k = int(client)
        task = self.pending[k].task
        assert task is not None, f"client {k} has nothing to train"
        self.pending[k].trained(task, vector(weights))
        self.offer(k)

    def leave(self, *, client: str) -> None:
        self.disconnect(int(client), ClientLeft)
        self.pending[int(client)].drop()

    def part(self, *, client: str) -> None:
        self.disconnect(int(client), ClientDisconnected)

    def come(self, *, client: str, server: str = "") -> None:
        k = int(client)
        if server:
            self.homes[k] = int(server)
        self.connect(k)
        self.go_on(self.homes[k])

    def save(self, i: int) -> None:
        checkpoint, self.saving[i] = self.saving[i], None
        assert checkpoint is not None, f"server {i} has begun no checkpoint"
        self.disks[i] = json.dumps(checkpoint.numbers), {name: v.copy() for name, v in checkpoint.vectors.items()}
        self.trace.append(f"{self.name(i)} has saved version {checkpoint.numbers['server']['version']}")
        self.tell_node(i, CheckpointSaved)
        self.go_on(i)

    def fail(self, i: int) -> None:
        self.saving[i] = None
        self.tell_node(i, CheckpointFailed)
        self.go_on(i)

    def expire(self, timer: str, *, server: str) -> None:
        i = self.number(server)
        name = timer if timer in self.timers[i] else f"{SERVERS}{timer}"
        self.timers[i].remove(name)
        self.tell_node(i, TimerFired, name)
        self.go_on(i)

    def crash(self, i: int) -> None:
        self.nodes[i], self.saving[i] = None, None
        self.timers[i].clear()
        for k in [k for k, connection in self.connections.items() if connection.server == i]:
            del self.connections[k]
        self.unlink(lambda pair: i in pair)

    def restart(self, i: int) -> None:
        node = self.new_life(i)
        disk = self.disks[i]
        if disk is None:
            self.trace.append(f"{self.name(i)} begins anew")
            self.tell_node(i, Start)
        else:
            self.tell_node(i, Resume, json.loads(disk[0]), disk[1])
            assert node.server is not None
            self.trace.append(f"{self.name(i)} goes on: {model_of(node.server)}")
        self.shown |= {(i, j): box.last for j, box in node.outboxes.items()}
        self.go_on(i)
        for k in [k for k, home in self.homes.items() if home == i and k not in self.connections]:
            self.connect(k)
            self.go_on(i)
        self.link_all()

    def cut(self, a: int, b: int) -> None:
        self.unlink(lambda pair: set(pair) == {a, b})

    def heal(self, a: int, b: int) -> None:
        self.link_all()

    def state(self) -> None:
        for i, node in enumerate(self.nodes):
            if node is None:
                self.trace.append(f"{self.name(i)}: down")
                continue
            assert node.server is not None
            self.trace.append(f"{self.name(i)}: {model_of(node.server)} {extras_of(node.server)}".rstrip())
            for j, box in node.outboxes.items():
                for posted in box.entries:
                    self.trace.append(f"  keeps for {self.name(j)}: {describe(posted.message)} (#{posted.sequence})")
        for sender, receiver, posted in self.in_flight:
            what = f"{describe(posted.message)} (#{posted.sequence})"
            self.trace.append(f"in flight {self.name(sender)}->{self.name(receiver)}: {what}")
        for k, holding in self.pending.items():
            for task in holding.tasks:
                if task.answer is not None:
                    self.trace.append(f"client {k} holds: {describe(task.answer)}")

    # --- what they have in common ----------------------------------------------------------------------------------

    def number(self, name: str) -> int:
        return self.count if name == "cloud" else int(name)

    def node(self, i: int) -> Node:
        node = self.nodes[i]
        assert node is not None, f"server {i} is down"
        return node

    def new_life(self, i: int) -> Node:
        self.lives[i] += 1
        servers, clock = range(len(self.nodes)), NodeClock()
        membership = Membership(i, first_view(servers, servers), clock, keys=SimKeys(str(i), i))
        secret = TaskTokens(str(i).encode(), self.lives[i])
        node = self.nodes[i] = Node(
            i, lambda roster: self.build(i, roster), secret, self.rules[i], membership=membership, clock=clock
        )
        self.effects[i] = []
        return node

    def tell_node(self, i: int, kind: type[Event], *fields: Any) -> None:
        effects = self.node(i).step(kind(*fields, now=0.0))
        self.effects[i] += [effect for effect in effects if not isinstance(effect, Rejected)]
        if effects and isinstance(effects[-1], Rejected):
            raise effects[-1].rejection

    def connect(self, k: int) -> None:
        home = self.homes[k]
        self.connections[k] = Connection(k, home)
        held = tuple(self.pending[k].connect(home))
        self.tell_node(home, ClientConnected, k, self.connections[k], self.points[k], held)

    def disconnect(self, k: int, how: type[Event]) -> None:
        connection = self.connections.pop(k)
        self.tell_node(connection.server, how, k, connection)
        self.go_on(connection.server)

    def offer(self, k: int) -> None:
        """A client sends what it has to say, if it can."""
        connection, holding = self.connections.get(k), self.pending[k]
        if connection is None:
            self.trace.append(f"client {k} keeps its answer")
            return
        offered = holding.offer()
        if offered is not None:
            ticket, answer = offered
            node = self.node(connection.server)
            try:
                self.tell_node(connection.server, UpdateReceived, k, node.verify_token(k, ticket).number, answer)
            except Rejection as rejection:
                self.trace.append(f"{self.name(connection.server)} refuses client {k}: {rejection.reason}")
            self.go_on(connection.server)

    def link_all(self) -> None:
        up = [i for i, node in enumerate(self.nodes) if node is not None]
        for i, j in ((i, j) for i in up for j in up if i != j and (i, j) not in self.linked):
            self.tell_node(j, PeerHelloReceived, self.node(i).handshake(j), b"", b"")
            received = self.node(j).received.get(i, 0)
            self.tell_node(i, PeerConnected, j, self.node(j).handshake(i), received, 0.0)
            self.tell_node(i, PeerAcknowledged, j, self.node(j).acknowledged.get(i, 0))
            self.linked[i, j] = received
            self.tell(i, j)

    def unlink(self, concerned: Any) -> None:
        self.linked = {pair: sent for pair, sent in self.linked.items() if not concerned(pair)}
        self.in_flight = [flying for flying in self.in_flight if not concerned(flying[:2])]

    def deliver_at(self, position: int) -> None:
        sender, receiver, posted = self.in_flight.pop(position)
        if posted.sequence <= self.node(receiver).received.get(sender, 0):
            self.trace.append(f"{self.name(receiver)} drops {describe(posted.message)} (#{posted.sequence})")
        self.tell_node(receiver, PeerMessageReceived, sender, posted.sequence, posted.message)
        self.go_on(receiver)

    # --- driving a host ----------------------------------------------------------------------------------------------

    def go_on(self, i: int) -> None:
        """Do what a node asks for, and have served what waits."""
        node = self.node(i)
        self.carry_out(i)
        while node.ready:
            assert node.server is not None
            before = model_of(node.server)
            self.trace.append(f"{self.name(i)} <- {self.served(node)}")
            self.tell_node(i, HandleNext)
            self.tell_node(i, Handled, node.compute())
            self.carry_out(i, before)

    def served(self, node: Node) -> str:
        """What comes next."""
        arrival = node.next_entry
        if arrival.timer is not None:
            return f"timer {arrival.timer}"
        who = self.name(arrival.sender) if arrival.peer else f"client {arrival.sender}"
        if arrival.message is None:
            return f"{who} comes" + (" and holds a task" if arrival.held_tokens else "")
        return f"{who}{', stored' if arrival.requeued else ''}: {describe(arrival.message)}"

    def carry_out(self, i: int, before: str | None = None) -> None:
        moved: list[int] = []
        while effects := self.effects[i]:
            self.effects[i] = []
            for effect in effects:
                if isinstance(effect, SaveCheckpoint):
                    self.show_kept(i, before)
                    before = None
                self.one(i, effect, moved)
        self.show_kept(i, before)
        for k in moved:
            self.offer(k)

    def show_kept(self, i: int, before: str | None) -> None:
        node = self.node(i)
        for j, box in node.outboxes.items():
            for posted in box.entries:
                if posted.sequence > self.shown.get((i, j), 0):
                    self.trace.append(f"  keeps for {self.name(j)}: {describe(posted.message)}")
            self.shown[i, j] = box.last
        if before is not None and node.server is not None and model_of(node.server) != before:
            self.trace.append(f"  state: {model_of(node.server)}")

    def one(self, i: int, effect: Effect, moved: list[int]) -> None:
        match effect:
            case WelcomeClient(connection, keep, _, received, saved, ask):
                holding = self.pending[connection.client]
                if holding.tasks:
                    self.trace.append(f"  -> client {connection.client}: {'go on' if keep else 'forget that'}")
                holding.welcomed(i, keep=keep, received=received, saved=saved, ask=ask)
                moved.append(connection.client)
            case TellSaved(connection, saved, ask):
                self.trace.append(f"  -> client {connection.client}: {'send what I lost' if ask else 'that is saved'}")
                self.pending[connection.client].told(saved, ask=ask)
                moved.append(connection.client)
            case SendTask(connection, ticket, message, _, number, saved):
                self.pending[connection.client].assigned(i, number, ticket, message, saved)
                self.trace.append(f"  -> client {connection.client}: {describe(message)}")
            case WriteFact(fact):
                self.trace.append(f"  fact: {describe(fact, fact.kind, leave_out='server')}")
            case ClientRejected(k, rejection):
                self.trace.append(f"  refuses the task of client {k}: {rejection.reason}")
            case CloseSession(connection, reason):
                self.trace.append(f"  closes the connection of client {connection.client}: {reason}")
            case SaveCheckpoint():
                self.saving[i] = effect
                self.trace.append("  begins a checkpoint")
            case SendPeer(j):
                self.tell(i, j)
            case AcknowledgePeer(j, sequence):
                if (j, i) in self.linked:
                    self.trace.append(f"  -> {self.name(j)}: acknowledges #{sequence}")
                    self.tell_node(j, PeerAcknowledged, i, sequence)
            case StartTimer(timer, seconds):
                self.timers[i].add(timer)
                if timer == RETRY or timer.startswith((AWAY, SERVERS)):
                    self.trace.append(f"  timer {timer.removeprefix(SERVERS)}: {show(seconds)} s")
            case StopTimer(timer):
                self.timers[i].discard(timer)

    def tell(self, i: int, j: int) -> None:
        if (i, j) not in self.linked:
            return
        while (posted := self.node(i).next_for(j, self.linked[i, j])) is not None:
            self.linked[i, j] = posted.sequence
            self.trace.append(f"  {self.name(i)} -> {self.name(j)}: {describe(posted.message)} (#{posted.sequence})")
            self.in_flight.append((i, j, posted))
