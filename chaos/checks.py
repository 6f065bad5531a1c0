"""Checkers: invariants that hold at all times, and recovery some time after the last fault."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from chaos.attackers import flooded, outweighed
from chaos.faulty_cluster import FaultyCluster
from chaos.mask_checks import THRESHOLD, MaskChecks
from spyker.node.effects import SaveCheckpoint
from spyker.node.pending_updates import PendingTask
from spyker.node.view_proofs import ViewProof, vote_statement
from spyker.privacy.masking import MaskedSums
from spyker.protocol.facts import (
    ClientAtTwoServers,
    CloudRoundEnded,
    EarlySyncStarted,
    Merged,
    ServerDuplicated,
    SyncStarted,
    TokenArrived,
    UpdateApplied,
)
from spyker.protocol.masked_server import MaskedServer
from spyker.protocol.messages import MaskedUpdate, Update
from spyker.records import Fact
from spyker.sim.sim_keys import SimKeys
from spyker.sim.sim_process import SimDisk, SimProcess

EVERY = 0.25  # virtual seconds between two checks of all servers
MOST_EPOCHS = 1000
MOST_ENTRIES, MOST_PROPOSALS, MOST_WAITING = 8, 16, 500
UPDATES_EVERY = 2.5  # virtual seconds between two checks of all applied updates
MAX_DISTANCE = 8.0  # of two final models; optima of clients are up to 5 apart, and momentum adds to it


class ViolationError(Exception):
    """An invariant is violated."""


class Timeline:
    """The client updates in the state of one server, in the order in which they were handled."""

    def __init__(self) -> None:
        self.handled: list[int] = []
        self.visible = 0  # how many of them the checkpoint holds that the next process would read
        self.durable = 0  # how many of them a checkpoint holds that survives a power cut
        self.saved_version = 0


class CheckedProcess(SimProcess):
    """A simulated process that reports handled updates and saved checkpoints to the checkers."""

    watch: Checks
    version: int | None = None
    """Version in the last fact of this process."""
    began_new = False
    """Whether the model was checked that this process started from."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.begun: list[int] = []  # exchanges that it has started and not saved

    @property
    def timeline(self) -> Timeline:
        """The timeline of its disk and lineage. A copy of the disk and a new lineage have timelines of their own."""
        return self.watch.timelines[self.disk, self.disk.lineage]

    def _handle(self) -> None:
        arrival = self.node.next_entry
        if self.version is None:
            self.version = self.server.version
        if isinstance(arrival.message, Update | MaskedUpdate) and arrival.number and not arrival.requeued:
            self.watch.handled(self, arrival.message)
        super()._handle()

    def save(self, checkpoint: SaveCheckpoint) -> None:
        """Note which updates and exchanges a checkpoint will hold."""
        self._mark = len(self.timeline.handled), checkpoint.numbers["server"]["version"]
        self._exchanges = list(self.begun)
        super().save(checkpoint)

    def _write(self, checkpoint: SaveCheckpoint) -> None:
        super()._write(checkpoint)
        if self._visible and self.disk.lineage == self.node.membership.lineage:
            self.timeline.visible = self._mark[0]

    def _sync(self) -> None:
        if self._visible and self.disk.lineage == self.node.membership.lineage:
            self.timeline.durable, self.timeline.saved_version = self._mark
            del self.begun[: len(self._exchanges)]
            self.watch.started(self.node.id, self._exchanges)
        super()._sync()  # this may begin the next checkpoint, with other marks


def process_cannot_save(world: FaultyCluster, server: int) -> bool:
    """Return whether the status of all servers that know a server shows that it cannot save."""
    for process in world.processors:
        if process.alive and process.node.server is not None:
            states = {member.server: member.state for member in process.node.status(process.now()).members}
            if not states.get(server, "cannot save").endswith("cannot save"):
                return False
    return True


class Checks:
    """Observes one cluster."""

    def __init__(self) -> None:
        self.timelines: dict[tuple[SimDisk, str], Timeline] = defaultdict(Timeline)
        self.handled_updates: dict[int, Update | MaskedUpdate] = {}  # by id; the references keep ids unique
        self.tokens: dict[int, int] = {}  # by bid, the server that had the token first
        self.syncs: dict[int, int] = {}  # by bid, the server that started the exchange
        self.known: set[int] = set()  # bids of exchanges in which a model was merged
        self.latest_sync = 0.0
        self.merged: dict[tuple[int, int], float] = {}
        self.applied: dict[int, float] = {}  # by server, the time of its last applied update
        self.proofs: list[ViewProof] = []  # that were checked
        self.counts: Counter[tuple[int, int]] = Counter()  # applied updates by server and client
        self.epochs: dict[int, Any] = {}  # the view of each epoch
        self.world: FaultyCluster
        self.active_since = 0.0  # time since which every server must have applied updates and exchanged models
        self.full: int | None = None  # the server whose disk is full at the end
        self.updates: dict[int, tuple[int, PendingTask, str]] = {}  # with client and lineage of the server
        self.unreliable: set[int] = set()  # clients that were hostile
        self.masked = False  # whether clients mask their updates
        self.masks = MaskChecks(self._fail, self._summed)
        self.sums: dict[bytes, bytes] = {}  # masks that home servers have subtracted; the references keep ids unique

    def begin(self, world: FaultyCluster, active_since: float, *, masked: bool = False) -> None:
        """Observe a cluster that has not started; every server must be active after ``active_since``."""
        self.world, self.active_since, self.masked = world, active_since, masked
        watch = self

        class WatchedProcess(CheckedProcess):
            pass

        WatchedProcess.watch = watch
        world.process_kind = WatchedProcess
        world.checks = self
        world.schedule(EVERY, self.check_all)
        world.schedule(UPDATES_EVERY, self.check_updates_count_once)

    def fact(self, t: float, fact: Fact, queue: int | None) -> None:
        """Check a fact."""
        match fact:
            case TokenArrived():
                first = self.tokens.setdefault(fact.bid, fact.server)
                if first != fact.server:
                    self._fail(f"servers {first} and {fact.server} both had the token for exchange {fact.bid}")
            case SyncStarted():
                self._started(t, fact)
            case CloudRoundEnded() | EarlySyncStarted():
                self.latest_sync = t
            case UpdateApplied():
                self.applied[fact.server] = t
                self.counts[fact.server, fact.client] += 1
            case ClientAtTwoServers():
                self._fail(
                    f"servers {fact.server} and {fact.peer} report client {fact.client}, whose key nobody else has"
                )
            case ServerDuplicated() if fact.server != fact.peer and not self._may_have_two_processes(fact.peer):
                self._fail(f"server {fact.server} reports a second process of server {fact.peer}, which has none")
            case Merged():
                self.merged[fact.server, fact.peer] = t
                self.known.add(fact.bid)

    def _may_have_two_processes(self, server: int) -> bool:
        """Return whether a fault has used the key, state or certificate of a server a second time."""
        world = self.world
        copied = any(lineage.partition(".")[0] == str(server) for lineage in world.tampered)
        return copied or server in world._removed or any(liar.server == server for liar in world.attackers)

    def _started(self, t: float, fact: SyncStarted) -> None:
        self.latest_sync = t
        if self.world.processors[fact.server].server.uses_token:
            self._check_tokens()

    def started(self, server: int, exchanges: Sequence[int]) -> None:
        """Check the exchanges that a server has saved. No other server knows of unsaved ones, which a crash undoes."""
        if self.world.processors[server].server.uses_token:
            for bid in exchanges:
                first = self.syncs.setdefault(bid, server)
                if first != server:
                    self._fail(f"servers {first} and {server} both started exchange {bid}")

    def _check_tokens(self) -> None:
        alive = [p for p in self.world.processors if p.alive]
        able = [p.node.id for p in alive if p.server.has_token and p.node.may_lead(p.now())]
        if len(able) > 1:
            self._fail(f"servers {able} have a token and may use it")

    def written(self, process: CheckedProcess, fact: Fact) -> None:
        """Check a fact of a process: versions rise one by one from the one that it started with."""
        if isinstance(fact, SyncStarted):
            process.begun.append(fact.bid)
        if isinstance(fact, UpdateApplied):
            before = process.version or 0
            if fact.version != before + 1:
                self._fail(f"server {fact.server} went from version {before} to {fact.version}")
            process.version = fact.version

    def stopping(self, process: CheckedProcess, why: str, *, anew: bool) -> None:
        """Check why a process stops: it may drop its state only if that was tampered with."""
        if anew and process.node.membership.lineage not in self.world.tampered:
            self._fail(f"server {process.node.id} must drop a state that was not tampered with: {why}")
        i, lineage, world = process.node.id, process.node.membership.lineage, self.world
        if i not in world._removed and lineage not in world.tampered and lineage == world.disks[i].lineage:
            self._fail(f"server {i} was stopped by a message of another: {why}")

    def _summed(self, sums: MaskedSums, masks: bytes) -> None:
        """Check that a home server subtracts masks once."""
        for process in self.world.all_processes:
            if process.alive and getattr(process.node.server, "masked_sums", None) is sums:
                assert isinstance(process, CheckedProcess)
                key = id(self.sums.setdefault(masks, masks))
                if key in process.timeline.handled:
                    self._fail(f"server {process.node.id} uses a sum twice")
                process.timeline.handled.append(key)

    def handled(self, process: CheckedProcess, update: Update | MaskedUpdate) -> None:
        """Check that a server handles a client's update once."""
        self.handled_updates[id(update)] = update
        if id(update) in process.timeline.handled:
            self._fail(f"server {process.node.id} handles an update twice")
        process.timeline.handled.append(id(update))

    def resumed(self, process: CheckedProcess) -> None:
        """Check a process that resumed from a checkpoint: only unsaved updates are lost."""
        timeline = process.timeline
        timeline.durable = timeline.visible  # a process syncs the checkpoint that it resumes from
        del timeline.handled[timeline.durable :]
        process._mark = len(timeline.handled), process.server.version  # of its first checkpoint, which is being written
        if process.server.version < timeline.saved_version:
            self._fail(
                f"server {process.node.id} saved version {timeline.saved_version} and has {process.server.version}"
            )

    def restored(self, server: int) -> None:
        """Forget the exchanges that only the state knew of that a backup has replaced."""
        self.syncs = {bid: who for bid, who in self.syncs.items() if who != server or bid in self.known}

    def copied(self, first: CheckedProcess, second: CheckedProcess) -> None:
        """Give a second process, started from a copy of a disk, a timeline of its own."""
        before, after = first.timeline, second.timeline
        after.handled, after.saved_version = before.handled[: before.visible], before.saved_version
        after.visible = after.durable = before.visible
        self.resumed(second)

    # --- Updates of clients ------------------------------------------------------------------------------------------

    def trained(self, client: int, task: PendingTask, lineage: str) -> None:
        """Note a client's update for a server with this lineage."""
        self.updates[id(task.answer)] = client, task, lineage

    def left(self, client: int) -> None:
        """Forget the updates of a client that has left."""
        self.updates = {key: update for key, update in self.updates.items() if update[0] != client}

    def distrusted(self, client: int) -> None:
        """Note a hostile client: its updates may be rejected."""
        self.unreliable.add(client)

    def lost_power(self, disk: SimDisk) -> None:
        """Note that a disk has lost its unsynced writes."""
        timeline = self.timelines[disk, disk.lineage]
        timeline.visible = timeline.durable

    def check_no_update_is_lost(self) -> None:
        """Check that each update is in the state of its server or kept by its client, unless that client has left.

        Exempt are updates for a lost state: of a server that was removed, or whose disk was lost or changed.
        """
        world = self.world
        kept = {id(task.answer) for pending in world.pending for task in pending.tasks}
        handled = {place: set(timeline.handled) for place, timeline in self.timelines.items()}
        for key, (client, task, lineage) in self.updates.items():
            i = task.place
            gone = i in world._removed or world.disks[i].lineage != lineage or lineage in world.tampered
            if gone or key in kept or client in self.unreliable or world.excluded(client):
                continue
            if key not in handled.get((world.disks[i], lineage), ()):
                self._fail(f"an update of client {client} for server {i} is lost")

    def check_all(self) -> None:
        """Check all running processes, and schedule the next check."""
        world = self.world
        for process in world.processors:
            if process.alive:
                assert isinstance(process, CheckedProcess)
                self._check_process(process)
        self._check_tokens()
        world.schedule(world.clock.now + EVERY, self.check_all)

    def check_updates_count_once(self) -> None:
        """Check that no update was applied at two servers, also if its client has moved."""
        world = self.world
        seen: dict[int, int] = {}
        for i in world.places.servers:
            for update in self.timelines[world.disks[i], world.disks[i].lineage].handled:
                if seen.setdefault(update, i) != i:
                    self._fail(f"an update was applied at server {seen[update]} and at server {i}")
        world.schedule(world.clock.now + UPDATES_EVERY, self.check_updates_count_once)

    def _check_process(self, process: CheckedProcess) -> None:
        node = process.node
        known = self.epochs.setdefault(node.view.epoch, node.view)
        if known != node.view:
            self._fail(f"there are two views in epoch {node.view.epoch}")
        for proof in node.membership.chain.proofs:
            self._check_proof(node.id, proof)
        for j, box in node.outboxes.items():
            if len(box.entries) > MOST_ENTRIES:
                self._fail(f"server {node.id} keeps {len(box.entries)} messages for server {j}")
        if len(node.membership.proposals) > MOST_PROPOSALS:
            self._fail(f"server {node.id} has {len(node.membership.proposals)} proposals")
        if node.waiting > MOST_WAITING and process.backlog is None:
            self._fail(f"{node.waiting} messages wait at server {node.id}")
        if isinstance(process.server, MaskedServer) and process.server.masks:
            self.masks.look(f"server {node.id}", process.server.state().vectors)
        if wrong := outweighed(process.server):
            self._fail(wrong)
        if not np.isfinite(process.server.weights.snapshot()).all():
            self._fail(f"the model of server {node.id} is not finite")
        if node.awaits_bootstrap and node.server is not None and not process.began_new:
            process.began_new = True
            others = [p.server.age for p in self.world.processors if p.alive and p.node.server and p is not process]
            if process.server.age < min(others, default=0.0) / 4:
                self._fail(
                    f"server {node.id} began with a model of age {process.server.age:.1f} among {min(others):.1f}"
                )

    def _check_proof(self, server: int, proof: ViewProof) -> None:
        """Check that a majority of the voters has signed, each with its own key."""
        if proof in self.proofs:
            return
        self.proofs.append(proof)
        keys, epoch = SimKeys("", 0), proof.view.epoch
        signed = []
        for j, vote in proof.votes.items():
            lineage = proof.previous.members[j].lineage or vote.lineage
            statement = vote_statement(keys.federation, j, proof.previous, proof.ballot, proof.view)
            if lineage.partition(".")[0] == str(j) and keys.verify(lineage, statement, vote.signature):
                signed.append(j)
        if not proof.previous.majority(signed) or epoch != proof.previous.epoch + 1 or epoch > MOST_EPOCHS:
            self._fail(f"server {server} follows a view of epoch {epoch} that no majority has signed")

    def fill_a_disk(self, chosen: int, active_since: float) -> None:
        """Check recovery, then fill a disk; the other servers must be active after ``active_since``."""
        self.end()
        self.full, self.active_since = self.world.fill_disk_of(chosen), active_since

    def end(self) -> None:
        """Check that the cluster has recovered from all faults."""
        self.check_all()
        self.check_updates_count_once()
        self.check_no_update_is_lost()
        world = self.world
        for process in world.all_processes:
            i = process.node.id
            if process.alive and (i in world._removed or process is not world.processors[i]):
                self._fail(f"a process of server {i} runs that should have stopped")
        members = [i for i in world.places.servers if i not in world._removed]
        views = {}
        for i in members:
            process = world.processors[i]
            if not process.alive or process.node.server is None:
                why = [why for j, why in world.stopped if j == i]
                self._fail(f"server {i} is not back {why[-1:]}")
            views[i] = process.node.view
            if process.node.membership.suspected & set(members):
                self._fail(f"server {i} still suspects {sorted(process.node.membership.suspected)}")
        if len({view.epoch for view in views.values()}) > 1:
            self._fail(f"epochs differ: { {i: view.epoch for i, view in views.items()} }")
        if sorted(views[members[0]].members) != members:
            self._fail(f"servers {members} run, and the members are {sorted(views[members[0]].members)}")
        if self.latest_sync < self.active_since:
            self._fail(f"the last exchange began at {self.latest_sync:.1f} s")
        for i in members:
            waits = i == self.full  # its clients may wait for a checkpoint
            if self._can_learn(i) and not waits and self.applied.get(i, 0.0) < self.active_since:
                self._fail(f"server {i} has applied no update since {self.active_since:.1f} s")
            forged = i in {
                attacker.server for attacker in world.attackers
            }  # its heartbeats do not report the full disk
            if i == self.full and not forged and not process_cannot_save(world, i):
                self._fail(f"server {i} does not say that it cannot save")
            if world.has_cloud or i == self.full:
                continue  # edges merge no models, and no server waits for one with a full disk
            if not any(self.merged.get((i, j), 0.0) > self.active_since for j in members):
                self._fail(f"server {i} has merged no model since {self.active_since:.1f} s")
            first = next(j for j in members if j != self.full)  # it merges the models of the others
            begins = not world.processors[i].server.uses_token and i == first
            if not begins and not any(self.merged.get((j, i), 0.0) > self.active_since for j in members):
                self._fail(f"no server has merged the model of server {i} since {self.active_since:.1f} s")
        if any(world.processors[i].server.update_filter.on for i in members) and (wrong := flooded(self.counts)):
            self._fail(wrong)
        models = [world.processors[i].server.weights.snapshot() for i in members if i != self.full]
        apart = max(float(np.linalg.norm(a - b)) for a in models for b in models)
        if apart > MAX_DISTANCE:
            self._fail(f"models are {apart:.1f} apart")

    def _can_learn(self, server: int) -> bool:
        """Return whether a server has clients, and enough of them."""
        there = self.world.places.clients_of(server)
        return len(there) >= (THRESHOLD if self.masked else 1)

    def _fail(self, what: str) -> None:
        raise ViolationError(f"at {self.world.clock.now:.2f} s: {what}")
