"""A simulated cluster of whole server processes with injected faults."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from chaos.fault_plan import Fault, FaultPlan
from chaos.lying_servers import Attacker
from chaos.mask_checks import masking
from spyker.algorithms.builtin import ALGORITHMS
from spyker.config.scenario import Training
from spyker.engines.engine import InProcessEngine, TrainJob
from spyker.node.control_messages import ControlMessage, PeerHandshake
from spyker.node.effects import Effect, SendControl, SendTask, StopProcess, WriteFact
from spyker.node.events import ClientDisconnected
from spyker.node.outbox import OutboxEntry
from spyker.node.pending_updates import PendingTask
from spyker.node.views import NOBODY
from spyker.placement import Placement, Topology
from spyker.protocol.masked_client import MaskingClient
from spyker.protocol.messages import ClientMessage, MaskedUpdate, Update
from spyker.protocol.server import Server, Setup, Work
from spyker.records import Fact
from spyker.sim.clock import Clock
from spyker.sim.cluster import ClusterSimulation
from spyker.sim.connected_processes import SimPeerConnection, SimSession
from spyker.sim.links import Links
from spyker.sim.sim_process import SimDisk, SimProcess
from spyker.sim.sim_seals import SimSealer
from spyker.tasks.built_in.quadratic import Options, Quadratic

SETTINGS: dict[str, dict[str, Any]] = {
    "spyker": {"h_inter": 3.0, "h_intra": 8.0},
    "sync-spyker": {"h_intra": 6.0},
    "stride": {},
    "hierfavg": {},
}


class DelayedLinks(Links):
    """Links between servers with temporary delays. Messages of a connection stay in order."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.late: dict[tuple[int, int], float] = {}  # additional seconds
        self._arrived: dict[tuple[str, int, int], float] = {}  # by connection

    def between(self, now: float, sender: int, receiver: int, size: int) -> float:
        """Return the arrival time of a message between servers."""
        return self._in_order("model", sender, receiver, super().between(now, sender, receiver, size))

    def control(self, now: float, sender: int, receiver: int) -> float:
        """Return the arrival time of a control message between servers."""
        return self._in_order("control", sender, receiver, super().control(now, sender, receiver))

    def _in_order(self, connection: str, sender: int, receiver: int, due: float) -> float:
        due += self.late.get((sender, receiver), 0.0)
        key = connection, sender, receiver
        self._arrived[key] = due = max(due, self._arrived.get(key, 0.0))
        return due


class FaultyCluster(ClusterSimulation):
    """A :class:`~spyker.sim.cluster.ClusterSimulation` with further faults, which reports events to the checkers."""

    drift: tuple[float, ...] = ()
    has_cloud = False
    links: DelayedLinks
    checks: Any  # the Checks that observe this cluster

    def __init__(self, *arguments: Any, seed: int, **surroundings: Any) -> None:
        super().__init__(*arguments, **surroundings)
        self._random = np.random.default_rng((seed, 11))
        self._noisy = False
        self._blocked: set[tuple[int, int]] = set()  # ordered pairs of servers whose messages are held back
        self._delayed: dict[tuple[int, int], list[tuple[SimPeerConnection, OutboxEntry]]] = {}
        self._removed: set[int] = set()  # servers that were voted out
        self.all_processes: list[SimProcess] = []  # including those that have ended
        self.tampered: set[str] = set()  # lineages that were copied or restored from a backup
        self.attackers: list[Attacker] = []
        self.hostile: set[int] = set()  # clients that send invalid updates
        self.issuers: dict[bytes, str] = {}  # by task token, the lineage of the server that issued it

    def now_at(self, server: int) -> Callable[[], float]:
        """Return the clock of a server. Clocks have different rates and different origins."""
        rate = self.drift[server] if server < len(self.drift) else 1.0
        return lambda: 1000.0 * server + rate * self.clock.now

    # --- Between servers ---------------------------------------------------------------------------------------------

    def carry_out(self, process: SimProcess, effect: Effect) -> None:
        """Carry out an effect; control messages may be lost, duplicated and delayed."""
        if isinstance(effect, WriteFact):
            self.checks.written(process, effect.fact)
        elif isinstance(effect, StopProcess):
            self.checks.stopping(process, effect.reason, anew=effect.restart)
        if self._noisy and isinstance(effect, SendControl):
            for _ in range(int(self._random.choice([0, 1, 1, 2]))):
                self.clock.at(
                    self.clock.now + float(self._random.exponential(0.3)), self._carry_out_late, process, effect
                )
            return
        super().carry_out(process, effect)

    def _carry_out_late(self, process: SimProcess, effect: Effect) -> None:
        if process.alive:
            super().carry_out(process, effect)

    def _control_arrives(self, link: SimPeerConnection, message: ControlMessage) -> None:
        if (link.sender.node.id, link.receiver.node.id) not in self._blocked:
            super()._control_arrives(link, message)

    def _peer_message_arrives(self, link: SimPeerConnection, entry: OutboxEntry) -> None:
        pair = link.sender.node.id, link.receiver.node.id
        if pair in self._blocked:
            self._delayed.setdefault(pair, []).append((link, entry))
        else:
            super()._peer_message_arrives(link, entry)

    def _acknowledged(self, link: SimPeerConnection, sequence: int) -> None:
        if (link.receiver.node.id, link.sender.node.id) not in self._blocked:
            super()._acknowledged(link, sequence)

    def _link(self, i: int, j: int, hello: PeerHandshake | None = None) -> None:
        """Connect two servers. The handshake is delayed, and may be outdated when it arrives."""
        sender = self.processors[i]
        if self.clock.now > 0 and sender.alive and sender.backlog is None and sender.node.server is not None:
            due = self.clock.now + float(self._random.exponential(0.1))
            self.schedule(due, self._link_late, i, j, sender, sender.node.handshake(j))
        else:
            super()._link(i, j)

    def _link_late(self, i: int, j: int, sender: SimProcess, hello: PeerHandshake) -> None:
        super()._link(i, j, hello if self.processors[i] is sender else None)

    def block(self, a: int, b: int) -> None:
        """Hold back all messages from one server to another."""
        self._blocked.add((a, b))

    def unblock(self, a: int, b: int) -> None:
        """Deliver the messages that were held back, and those that follow."""
        self._blocked.discard((a, b))
        for link, entry in self._delayed.pop((a, b), []):
            super()._peer_message_arrives(link, entry)

    def reset(self, a: int, b: int) -> None:
        """Break the connections between two servers; messages in flight are lost. The servers reconnect."""
        for pair in ((a, b), (b, a)):
            if pair in self._peer_links:
                self._peer_links[pair].open = False
        self._link_all([a, b], at=self.clock.now + self.reconnect)

    def delay(self, a: int, b: int, seconds: float) -> None:
        """Delay all messages between two servers."""
        self.links.late |= {(a, b): seconds, (b, a): seconds}

    # --- One server --------------------------------------------------------------------------------------------------

    def destroy(self, server: int) -> None:
        """Destroy a server with its disk, and request its replacement until it is decided."""
        self.crash(server, lose_disk=True)
        self.disks[server].full = False
        self._request_replacement(server, self.disks[server].lineage)

    def _request_replacement(self, server: int, lineage: str, started: bool = False) -> None:
        """Request a replacement and start it; request it again if the former server was readmitted meanwhile."""
        if self.disks[server].lineage != lineage or server in self._removed:
            return
        nodes = [p.node for p in self.processors if p.alive and p.backlog is None and p.node.server is not None]
        newest = max((node.view for node in nodes), key=lambda view: view.epoch, default=None)
        member = None if newest is None else newest.members.get(server)
        if member is None or member.lineage not in (NOBODY, lineage):
            for node in nodes[:2]:
                if node.id != server and node.view is newest:
                    self.change(node.id, server)
        elif not started:
            self.restart(server, new=True)
            started = True
        if not started or member is None or member.lineage != lineage:
            self.schedule(self.clock.now + 1.0, self._request_replacement, server, lineage, started)

    def add(self, region: int) -> int:
        """Request the addition of a server, and start it once that is decided."""
        server = self.places.add_server(region)
        self.disks.append(SimDisk(server, seconds=0.01))
        self._unsaved.append(deque())
        self.updates_per_server.append(0)
        self.processors.append(self._process(server))
        self.processors[server].kill()  # it is started once it is a member
        self._request_replacement(server, self.disks[server].lineage)
        return server

    def damage(self, server: int) -> None:
        """Kill a process and make its checkpoints unreadable: it restarts with a new lineage."""
        self.crash(server)
        self.disks[server].begin_anew()
        self.schedule(self.clock.now + 1.0, self.restart_new, server)

    def restart_new(self, server: int) -> None:
        """Start a process without a state."""
        self.restart(server, new=True)

    def remove(self, server: int) -> None:
        """Request the removal of a server, and move its clients to others."""
        self._removed.add(server)
        moved = list(self.places.remove_server(server, self.links.latency))
        for k in moved:
            home = self.places.homes[k]
            assert home is not None
            self.move(k, home)
        self._request_removal(server)

    def _request_removal(self, server: int) -> None:
        nodes = [p.node for p in self.processors if p.alive and p.backlog is None and p.node.server is not None]
        knowing = [node for node in nodes if server in node.view.members and node.id != server]
        if knowing:
            self.change(knowing[0].id, server, remove=True)
        if self.clock.now < self.clock.end - 5:  # its addition may have been requested before, and be decided later
            self.schedule(self.clock.now + 1.0, self._request_removal, server)

    def restart_if_possible(self, server: int) -> None:
        """Restart a killed process, unless it has no state; then it waits for its replacement."""
        disk = self.disks[server]
        if disk.read() is not None or disk.joins:
            self.restart(server)

    def _process(self, i: int, *, new: bool = False) -> SimProcess:
        process = super()._process(i, new=new)
        self.all_processes.append(process)
        return process

    def restart(self, server: int, *, new: bool = False) -> None:
        """Restart a process, and report it to the checkers if it resumed."""
        before = self.processors[server]
        super().restart(server, new=new)
        process = self.processors[server]
        if process is not before and process.node.server is not None and not process.node.awaits_bootstrap:
            self.checks.resumed(process)

    def copy(self, server: int) -> None:
        """Start a second process from a copy of the first one's disk."""
        first = self.processors[server]
        super().copy(server)
        if self.processors[server] is not first:
            self.tampered.add(first.disk.lineage)
            self.checks.copied(first, self.processors[server])

    def crash(self, server: int, *, lose_disk: bool = False, cut_power: bool = False) -> None:
        """Kill a process; with ``cut_power``, its machine loses unsynced writes."""
        super().crash(server, lose_disk=lose_disk, cut_power=cut_power)
        if cut_power:
            self.checks.lost_power(self.disks[server])

    def slow_down(self, server: int, factor: float) -> None:
        """Multiply the cost of a server's work."""
        self.processors[server].costs = {work: factor * cost for work, cost in self.costs.items()}

    def fill_disk(self, server: int, full: bool) -> None:
        """Make all writes to a server's disk fail, or succeed again."""
        self.disks[server].full = full

    def fill_disk_of(self, chosen: int) -> int:
        """Fill the disk of one of the servers with clients; return its number."""
        live = [i for i in self.places.learners if i not in self._removed]
        server = live[chosen % len(live)]
        self.fill_disk(server, True)
        return server

    def slow_disk(self, server: int, seconds: float) -> None:
        """Set the duration of a server's checkpoints."""
        self.disks[server].seconds = seconds

    def set_noise(self, noisy: bool) -> None:
        """Switch the loss, duplication and delay of control messages on or off."""
        self._noisy = noisy

    # --- Clients ---------------------------------------------------------------------------------------------------

    def _task_arrives(self, session: SimSession, task: SendTask) -> None:
        """Note the lineage of the server that issued a task, and deliver it."""
        self.issuers[task.task_token] = session.process.disk.lineage
        super()._task_arrives(session, task)

    def _training_ends(self, trainee: tuple[int, PendingTask], job: TrainJob) -> None:
        """Report a client's update to the checkers: it must not be lost."""
        super()._training_ends(trainee, job)
        k, task = trainee
        if isinstance(task.answer, Update | MaskedUpdate):
            self.checks.trained(k, task, self.issuers[task.task_token])

    def leave(self, client: int) -> None:
        """Remove a client with the updates that it keeps."""
        super().leave(client)
        self.checks.left(client)

    def _answer_arrives(self, session: SimSession, offered: tuple[bytes, ClientMessage]) -> None:
        """Deliver an update; a hostile client sends NaN, a forged token or a duplicate in its place.

        NaN is rejected before it reaches the node, as in a deployment.
        """
        if session.client not in self.hostile:
            super()._answer_arrives(session, offered)
            return
        token, answer = offered
        choice = int(self._random.integers(4))
        if choice == 0:
            self.rejected["not-finite"] += 1
            session.open = False
            self._step(session.process, ClientDisconnected(session.client, session, now=session.process.now()))
            self._connect_soon([session.client])
            return
        if choice == 1:
            super()._answer_arrives(session, (bytes(len(token)), answer))
        for _ in range(2):
            super()._answer_arrives(session, offered)

    # --- Faults of a plan --------------------------------------------------------------------------------------------

    def inject(self, fault: Fault) -> None:
        """Inject a fault. Its numbers select servers and clients, modulo how many there are now."""
        live = [i for i in self.places.servers if i not in self._removed]
        n, k = len(live), fault.b % len(self.pending)
        learner = self.places.learners[fault.a % len(self.places.learners)]
        a = live[fault.a % n]
        b = live[(fault.a % n + 1 + fault.b % (n - 1)) % n] if n > 1 else a
        then = self.clock.now + fault.seconds
        match fault.what:
            case "crash":
                self.crash(a, cut_power=fault.b % 2 == 1)
                self.schedule(then, self.restart_if_possible, a)
            case "destroy":
                self.destroy(a)
            case "damage":
                self.damage(a)
            case "restore":
                self.back_up(a)
                self.schedule(self.clock.now + 3.0, self._roll_back, a)
            case "copy":
                self.copy(a)
            case "remove" if n > 3 and len(self.places.learners) > 1:
                self.remove(learner)
            case "add":
                self.move(k, self.add(self.places.server_regions[a]))
            case "cut":
                self.cut(a, b)
                self.schedule(then, self.heal, a, b)
            case "one-way":
                self.block(a, b)
                self.schedule(then, self.unblock, a, b)
            case "isolate":
                self.isolate(self.places.server_regions[a])
                self.schedule(then, self.rejoin, self.places.server_regions[a])
            case "region-cut":
                self.cut_region(a, self.places.server_regions[a])
                self.schedule(then, self.heal_region, a, self.places.server_regions[a])
            case "reset":
                self.reset(a, b)
            case "late":
                self.delay(a, b, float(self._random.uniform(0.2, 3.0)))
                self.schedule(then, self.delay, a, b, 0.0)
            case "noise":
                self.set_noise(True)
                self.schedule(then, self.set_noise, False)
            case "stop":
                process = self.processors[a]
                process.stop()
                self.schedule(then, process.wake)
            case "slow":
                self.slow_down(a, 200.0)
                self.schedule(then, self.slow_down, a, 1.0)
            case "full-disk":
                self.fill_disk(a, True)
                self.schedule(then, self.fill_disk, a, False)
            case "slow-disk":
                self.slow_disk(a, 0.7)
                self.schedule(then, self.slow_disk, a, 0.01)
            case "leave":
                self.leave(k)
                self.schedule(then, self._return, k, learner)
            case "move":
                self.move(k, learner)
            case "ghost":
                self.attack_as_former_member(a)
            case "liar":
                self.attack(a, self.disks[a].lineage, member=True)
            case "hostile":
                self.hostile.add(k)
                self.checks.distrusted(k)
                self.schedule(then, self.hostile.discard, k)

    def attack_as_former_member(self, server: int) -> None:
        """Attack with the key of a removed or replaced server or, if there is none, of a stranger."""
        gone = [j for j in sorted(self._removed) if not self.processors[j].alive]
        former = [p for p in self.all_processes if not p.alive and p.disk.lineage != p.node.membership.lineage]
        if gone:
            self.attack(gone[0], self.disks[gone[0]].lineage, member=False)
        elif former:
            self.attack(former[0].node.id, former[0].node.membership.lineage, member=False)
        else:
            self.attack(len(self.processors) + 7, "a stranger", member=False)

    def attack(self, server: int, lineage: str, *, member: bool) -> None:
        """Start a server that lies about the membership until the faults end."""
        attacker = Attacker(self, server, lineage, member=member)
        self.attackers.append(attacker)
        attacker.talk()

    def _roll_back(self, server: int) -> None:
        lineage, backup = self.disks[server].lineage, self.backups[server]
        if server not in self._removed and backup.lineage == lineage and backup.read() is not None:
            self.tampered.add(lineage)
            self.crash(server)
            self.restore(server)
            self.checks.restored(server)
            self.restart(server)

    def _return(self, client: int, server: int) -> None:
        home = self.places.homes[client]
        if home is None:
            self.come(client, server if server not in self._removed else self.places.learners[0])

    def end_faults(self) -> None:
        """End all faults, except that removed servers keep sending messages."""
        for attacker in self.attackers:
            attacker.talks = not attacker.member
        self._noisy = False
        self.hostile.clear()
        self.links.late.clear()
        for pair in list(self._blocked):
            self.unblock(*pair)
        for process in self.all_processes:
            process.wake()
        for i in range(len(self.processors)):
            for j in range(i):
                self.heal(i, j)
        live = [i for i in self.places.servers if i not in self._removed]
        for i in live:
            self.disks[i].full, self.disks[i].seconds = False, 0.01
            self.slow_down(i, 1.0)
            for region in sorted(set(self.places.client_regions)):
                self.heal_region(i, region)
            self.restart_if_possible(i)


def make_cluster(plan: FaultPlan, sink: Callable[[float, Fact, int | None], None]) -> FaultyCluster:
    """Return the cluster of a plan, without its faults."""
    chosen = ALGORITHMS[plan.algorithm]
    n, total = len(plan.clients), sum(plan.clients)
    places = Placement.begin(chosen.topology, plan.clients)
    task = Quadratic(Options(dimension=2), total, plan.seed, Training())
    random = np.random.default_rng((plan.seed, 3))
    distance = random.uniform(0.02, 0.15, (n, n))
    latency = [[0.001 if i == j else float(distance[i, j]) for j in range(n)] for i in range(n)]
    clock = Clock(plan.until)
    parameters = chosen.Parameters(**SETTINGS[plan.algorithm])
    attack = plan.attackers
    robust = None if attack is None else attack.robust
    masks = masking(len(places.servers)) if plan.masked else None
    settings = Setup(n, total, task.initial(), 0.2, parameters, plan.seed, now=lambda: clock.now)
    setup = replace(settings, robust=robust, masking=masks)
    delays = random.uniform(0.3, 0.6, total).tolist()

    def build(i: int, roster: Mapping[int, int]) -> Server:
        return chosen.create(i, setup, roster)

    world = FaultyCluster(
        build,
        [
            MaskingClient(k, home or 0, SimSealer(plan.seed, k), task.size(k), 0)
            if plan.masked
            else chosen.client(k, home or 0)
            for k, home in enumerate(places.homes)
        ],
        task.size if attack is None else attack.sizes(task.size),
        places,
        seed=plan.seed,
        links=DelayedLinks(latency, 1e8, places),
        delays=delays if attack is None else attack.delays(delays),
        costs={Work.NOTHING: 0.0, Work.MIX: 0.002, Work.AVERAGE: 0.004},
        engine=InProcessEngine(task),
        clock=clock,
        sink=sink,
    )
    world.drift = plan.drift
    world.has_cloud = chosen.topology is Topology.CLOUD
    world.reconnect = 0.2
    world.suspect_after, world.renew_token_after = 2.0, 4.0
    world.rules = replace(
        world.rules,
        heartbeat_interval=0.4,
        client_timeout=3.0,
        join_timeout=2.0,
        checkpoint_updates=10,
        checkpoint_seconds=2.0,
        save_retry=0.3,
    )
    for disk in world.disks:
        disk.seconds = 0.01
    return world
