"""What must hold, whatever happens; and what must hold again some time after the last blow."""

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

EVERY = 0.25  # virtual seconds between two looks at everything
MOST_EPOCHS = 1000
MOST_POSTED, MOST_WISHES, MOST_WAITING = 8, 16, 500
RARELY = 2.5  # between two looks at all answers that count anywhere
APART = 8.0  # how far apart models may be in the end; optima of clients are up to 5 apart, and momentum adds to it


class ViolationError(Exception):
    """Something that must hold does not."""


class Timeline:
    """The answers that are in the state of one server, in the order in which they were handled."""

    def __init__(self) -> None:
        self.handled: list[int] = []
        self.visible = 0  # up to here they are in the checkpoint that the next process would find
        self.durable = 0  # and up to here in one that survives a power cut
        self.saved_version = 0


class CheckedProcess(SimProcess):
    """Tells the checkers what is handled and what is saved."""

    watch: Checks
    version: int | None = None
    """The last one that it has stated."""
    began_new = False
    """Whether it was looked at since it was given a model."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.begun: list[int] = []  # exchanges that it has started, and that are not on its disk

    @property
    def timeline(self) -> Timeline:
        """What belongs to the state on its disk. A copy of the disk, or what begins there anew, has its own."""
        return self.watch.timelines[self.disk, self.disk.lineage]

    def _handle(self) -> None:
        arrival = self.node.next_entry
        if self.version is None:
            self.version = self.server.version
        if isinstance(arrival.message, Update | MaskedUpdate) and arrival.number and not arrival.requeued:
            self.watch.handled(self, arrival.message)
        super()._handle()

    def save(self, checkpoint: SaveCheckpoint) -> None:
        """Remember what a checkpoint will hold."""
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
        super()._sync()  # which may begin the next checkpoint, with other marks


def process_cannot_save(world: FaultyCluster, server: int) -> bool:
    """Return whether all servers that know it say so."""
    for process in world.processors:
        if process.alive and process.node.server is not None:
            states = {member.server: member.state for member in process.node.status(process.now()).members}
            if not states.get(server, "cannot save").endswith("cannot save"):
                return False
    return True


class Checks:
    """Watches one world."""

    def __init__(self) -> None:
        self.timelines: dict[tuple[SimDisk, str], Timeline] = defaultdict(Timeline)
        self.answers: dict[int, Update | MaskedUpdate] = {}  # kept, so that none is taken for another
        self.tokens: dict[int, int] = {}  # by bid, the server that had the token first
        self.syncs: dict[int, int] = {}  # by bid, who started it
        self.known: set[int] = set()  # bids of exchanges that some model was merged in
        self.latest_sync = 0.0
        self.merged: dict[tuple[int, int], float] = {}
        self.applied: dict[int, float] = {}  # by server, when it last applied an update
        self.proofs: list[ViewProof] = []  # of lists, those that were looked at
        self.counts: Counter[tuple[int, int]] = Counter()  # of updates that were applied, by server and client
        self.epochs: dict[int, Any] = {}  # by number, the list of servers
        self.world: FaultyCluster
        self.masked = False  # whether clients mask their updates
        self.lately = 0.0  # from when on everybody must take part again
        self.full: int | None = None  # the server whose disk is full in the end
        self.updates: dict[int, tuple[int, PendingTask, str]] = {}  # of clients, with the lineage of their server
        self.unreliable: set[int] = set()  # clients that were hostile at some time
        self.masks = MaskChecks(self._fail, self._summed)
        self.sums: dict[bytes, bytes] = {}  # that home servers have used; kept, so that none is taken for another

    def begin(self, world: FaultyCluster, lately: float, *, masked: bool = False) -> None:
        """Watch a world that has not begun; from ``lately`` on everybody must take part."""
        self.world, self.lately, self.masked = world, lately, masked
        watch = self

        class Watched(CheckedProcess):
            pass

        Watched.watch = watch
        world.process_kind = Watched
        world.watched = self
        world.schedule(EVERY, self.look)
        world.schedule(RARELY, self.look_at_answers)

    def fact(self, t: float, fact: Fact, queue: int | None) -> None:
        """A fact was stated."""
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
        """Return whether somebody has used a key, state or certificate of a server in a second place."""
        world = self.world
        copied = any(lineage.partition(".")[0] == str(server) for lineage in world.spoilt)
        return copied or server in world._gone or any(liar.server == server for liar in world.liars)

    def _started(self, t: float, fact: SyncStarted) -> None:
        self.latest_sync = t
        if self.world.processors[fact.server].server.uses_token:
            self._look_at_tokens()

    def started(self, server: int, exchanges: Sequence[int]) -> None:
        """A server has these on its disk. Of what is not there nobody was told, and a crash takes it back."""
        if self.world.processors[server].server.uses_token:
            for bid in exchanges:
                first = self.syncs.setdefault(bid, server)
                if first != server:
                    self._fail(f"servers {first} and {server} both started exchange {bid}")

    def _look_at_tokens(self) -> None:
        alive = [p for p in self.world.processors if p.alive]
        able = [p.node.id for p in alive if p.server.has_token and p.node.may_lead(p.now())]
        if len(able) > 1:
            self._fail(f"servers {able} have a token and may use it")

    def written(self, process: CheckedProcess, fact: Fact) -> None:
        """A process states a fact. Its versions go on from the one that it began with, one by one."""
        if isinstance(fact, SyncStarted):
            process.begun.append(fact.bid)
        if isinstance(fact, UpdateApplied):
            before = process.version or 0
            if fact.version != before + 1:
                self._fail(f"server {fact.server} went from version {before} to {fact.version}")
            process.version = fact.version

    def stopping(self, process: CheckedProcess, why: str, *, anew: bool) -> None:
        """A process must not go on. Only one whose state was tampered with may have to give it up."""
        if anew and process.node.membership.lineage not in self.world.spoilt:
            self._fail(f"server {process.node.id} must give up a state that nobody has tampered with: {why}")
        i, lineage, world = process.node.id, process.node.membership.lineage, self.world
        if i not in world._gone and lineage not in world.spoilt and lineage == world.disks[i].lineage:
            self._fail(f"server {i} was stopped by what somebody said: {why}")

    def _summed(self, sums: MaskedSums, masks: bytes) -> None:
        """A home server subtracts masks."""
        for process in self.world.everybody:
            if process.alive and getattr(process.node.server, "masked_sums", None) is sums:
                assert isinstance(process, CheckedProcess)
                key = id(self.sums.setdefault(masks, masks))
                if key in process.timeline.handled:
                    self._fail(f"server {process.node.id} uses a sum twice")
                process.timeline.handled.append(key)

    def handled(self, process: CheckedProcess, answer: Update | MaskedUpdate) -> None:
        """A server handles a client's answer."""
        self.answers[id(answer)] = answer
        if id(answer) in process.timeline.handled:
            self._fail(f"server {process.node.id} handles an answer twice")
        process.timeline.handled.append(id(answer))

    def resumed(self, process: CheckedProcess) -> None:
        """A process goes on from a checkpoint: what was not saved is gone, and nothing else."""
        timeline = process.timeline
        timeline.durable = timeline.visible  # a process syncs what it starts from
        del timeline.handled[timeline.durable :]
        process._mark = len(timeline.handled), process.server.version  # of its first checkpoint, which is under way
        if process.server.version < timeline.saved_version:
            self._fail(
                f"server {process.node.id} saved version {timeline.saved_version} and has {process.server.version}"
            )

    def restored(self, server: int) -> None:
        """A backup was put in a disk's place. What nobody but the disk knew of has never been."""
        self.syncs = {bid: who for bid, who in self.syncs.items() if who != server or bid in self.known}

    def copied(self, first: CheckedProcess, second: CheckedProcess) -> None:
        """A second process goes on from what a first one has saved. From here on, each is responsible for itself."""
        before, after = first.timeline, second.timeline
        after.handled, after.saved_version = before.handled[: before.visible], before.saved_version
        after.visible = after.durable = before.visible
        self.resumed(second)

    # --- Updates of clients ------------------------------------------------------------------------------------------

    def trained(self, client: int, task: PendingTask, lineage: str) -> None:
        """A client has an update for a server with this state."""
        self.updates[id(task.answer)] = client, task, lineage

    def left(self, client: int) -> None:
        """A client is gone, with the updates that it has kept."""
        self.updates = {key: update for key, update in self.updates.items() if update[0] != client}

    def distrusted(self, client: int) -> None:
        """A client's updates are replaced by others from now on, and may be rejected."""
        self.unreliable.add(client)

    def lost_power(self, disk: SimDisk) -> None:
        """What a disk had not synced is gone."""
        timeline = self.timelines[disk, disk.lineage]
        timeline.visible = timeline.durable

    def look_for_updates(self) -> None:
        """Each update of a client that runs on is in the state of its server, or the client still keeps it.

        Exempt are updates for a state that is gone: of a server that was removed, or whose disk was lost or changed.
        """
        world = self.world
        kept = {id(task.answer) for pending in world.pending for task in pending.tasks}
        handled = {place: set(timeline.handled) for place, timeline in self.timelines.items()}
        for key, (client, task, lineage) in self.updates.items():
            i = task.place
            gone = i in world._gone or world.disks[i].lineage != lineage or lineage in world.spoilt
            if gone or key in kept or client in self.unreliable or world.excluded(client):
                continue
            if key not in handled.get((world.disks[i], lineage), ()):
                self._fail(f"an update of client {client} for server {i} is lost")

    def look(self) -> None:
        """Look at everything."""
        world = self.world
        for process in world.processors:
            if process.alive:
                assert isinstance(process, CheckedProcess)
                self._look_at(process)
        self._look_at_tokens()
        world.schedule(world.clock.now + EVERY, self.look)

    def look_at_answers(self) -> None:
        """An answer counts at one server at most, whoever has turned to another one meanwhile."""
        world = self.world
        seen: dict[int, int] = {}
        for i in world.places.servers:
            for answer in self.timelines[world.disks[i], world.disks[i].lineage].handled:
                if seen.setdefault(answer, i) != i:
                    self._fail(f"an answer counts at server {seen[answer]} and at server {i}")
        world.schedule(world.clock.now + RARELY, self.look_at_answers)

    def _look_at(self, process: CheckedProcess) -> None:
        node = process.node
        known = self.epochs.setdefault(node.view.epoch, node.view)
        if known != node.view:
            self._fail(f"there are two lists of servers in epoch {node.view.epoch}")
        for proof in node.membership.chain.proofs:
            self._look_at_proof(node.id, proof)
        for j, box in node.outboxes.items():
            if len(box.entries) > MOST_POSTED:
                self._fail(f"server {node.id} keeps {len(box.entries)} messages for server {j}")
        if len(node.membership.proposals) > MOST_WISHES:
            self._fail(f"server {node.id} has {len(node.membership.proposals)} wishes")
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

    def _look_at_proof(self, server: int, proof: ViewProof) -> None:
        """A majority of the voters has signed, each with a key that it has had."""
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
            self._fail(f"server {server} follows a list of epoch {epoch} that no majority has signed")

    def fill_a_disk(self, chosen: int, lately: float) -> None:
        """All is well; then the disk of one server is full, and from ``lately`` on the others must go on without it."""
        self.end()
        self.full, self.lately = self.world.fill_for_good(chosen), lately

    def end(self) -> None:
        """Some time has passed since the last blow."""
        self.look()
        self.look_at_answers()
        self.look_for_updates()
        world = self.world
        for process in world.everybody:
            i = process.node.id
            if process.alive and (i in world._gone or process is not world.processors[i]):
                self._fail(f"a process of server {i} runs that should have stopped")
        members = [i for i in world.places.servers if i not in world._gone]
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
            self._fail(f"servers {members} run, and the list is {sorted(views[members[0]].members)}")
        if self.latest_sync < self.lately:
            self._fail(f"the last exchange began at {self.latest_sync:.1f} s")
        for i in members:
            waits = i == self.full  # its clients may have as many unsaved updates as they keep
            if self._can_learn(i) and not waits and self.applied.get(i, 0.0) < self.lately:
                self._fail(f"server {i} applied no update lately")
            forged = i in {attacker.server for attacker in world.liars}  # whose heartbeats say that all is well
            if i == self.full and not forged and not process_cannot_save(world, i):
                self._fail(f"server {i} does not say that it cannot save")
            if world.clouded or i == self.full:
                continue  # edges are told what to have, and nobody waits for a full disk
            if not any(self.merged.get((i, j), 0.0) > self.lately for j in members):
                self._fail(f"server {i} merged nobody's model lately")
            first = next(j for j in members if j != self.full)  # of the others, whose models go into its own
            begins = not world.processors[i].server.uses_token and i == first
            if not begins and not any(self.merged.get((j, i), 0.0) > self.lately for j in members):
                self._fail(f"nobody merged the model of server {i} lately")
        if any(world.processors[i].server.update_filter.on for i in members) and (wrong := flooded(self.counts)):
            self._fail(wrong)
        models = [world.processors[i].server.weights.snapshot() for i in members if i != self.full]
        apart = max(float(np.linalg.norm(a - b)) for a in models for b in models)
        if apart > APART:
            self._fail(f"models are {apart:.1f} apart")

    def _can_learn(self, server: int) -> bool:
        """Return whether a server has clients, and enough of them."""
        there = self.world.places.clients_of(server)
        return len(there) >= (THRESHOLD if self.masked else 1)

    def _fail(self, what: str) -> None:
        raise ViolationError(f"at {self.world.clock.now:.2f} s: {what}")
