"""Faults of simulated server processes, and changes of servers and clients: for outages and for fault injection."""

from __future__ import annotations

from spyker.node.events import ClientDisconnected, MembershipChangeRequested, PeerHelloReceived, Resume
from spyker.node.rejection import Rejection
from spyker.node.views import NOBODY, Member, MembershipChange
from spyker.sim.connected_processes import ProcessSimulation
from spyker.sim.sim_process import SimProcess


class ClusterSimulation(ProcessSimulation):
    """Server processes that crash and restart, with paths between them that are cut and healed."""

    # --- Faults of servers -------------------------------------------------------------------------------------------

    def crash(self, server: int, *, lose_disk: bool = False, cut_power: bool = False) -> None:
        """Kill a process: its inbox, unsaved state and connections are lost; by a power cut, unsynced writes, too."""
        if self.processors[server].alive:
            self._kill(self.processors[server])
        if cut_power:
            self.disks[server].cut_power()
        if lose_disk:
            self.disks[server].lose()

    def back_up(self, server: int) -> None:
        """Back up a server's disk."""
        self.backups[server] = self.disks[server].copied()

    def restore(self, server: int) -> None:
        """Restore a server's disk from its backup, if there is one and no process uses the disk."""
        if server in self.backups and not self.processors[server].alive:
            self.disks[server] = self.backups[server].copied()

    def copy(self, server: int) -> None:
        """Start a second process from a copy of the first one's disk."""
        first = self.processors[server]
        if not first.alive or self.disks[server].read() is None:
            return
        self.disks[server] = first.disk.copied()
        second = self.processors[server] = self._process(server)
        checkpoint = self.disks[server].read()
        assert checkpoint is not None
        self._step(second, Resume(*checkpoint, now=second.now()))
        for link in self._peer_links.values():
            if first in (link.sender, link.receiver):
                link.open = False
        self._link_all([server], at=self.clock.now)
        for j in self.places.servers:
            if j != server:
                self.clock.at(self.clock.now + self.reconnect, self._reconnect_copy, first, j)

    def _reconnect_copy(self, process: SimProcess, j: int) -> None:
        """Let the first of two copies try to connect to server ``j``, repeatedly."""
        i, receiver = process.node.id, self.processors[j]
        if not process.alive or process.later(self._reconnect_copy, process, j):
            return
        if receiver.alive and receiver.backlog is None and (i, j) not in self._cuts:
            try:
                receiver.step(PeerHelloReceived(process.node.handshake(j), b"", b"", now=receiver.now()))
            except Rejection as rejection:
                self._reject_call(process, receiver, rejection)
            self._both_go_on(process, receiver)
        self.clock.at(self.clock.now + self.reconnect, self._reconnect_copy, process, j)

    def change(self, by: int, server: int, *, remove: bool = False) -> None:
        """Request a membership change from server ``by``: replace a server, or remove it."""
        process = self.processors[by]
        before = process.node.view.members.get(server)
        if before is not None or not remove:
            member = None if remove else Member(NOBODY, learner=server in self.places.learners)
            process.step(MembershipChangeRequested(MembershipChange(server, member), before, now=process.now()))

    def replace(self, by: int, server: int) -> None:
        """Lose a server with its disk, and replace it."""
        self.crash(server, lose_disk=True)
        self.change(by, server)
        self.restart(server, new=True)

    def cut(self, a: int, b: int) -> None:
        """Cut the path between two servers."""
        for pair in ((a, b), (b, a)):
            self._cuts.add(pair)
            if pair in self._peer_links:
                self._peer_links[pair].open = False

    def heal(self, a: int, b: int) -> None:
        """Restore the path between two servers."""
        self._cuts -= {(a, b), (b, a)}
        self._link_all([a, b], at=self.clock.now + self.reconnect)

    def cut_region(self, server: int, region: int) -> None:
        """Cut the path between a server and the clients in a region."""
        self._region_cuts.add((server, region))
        for k, session in enumerate(self.sessions):
            if session is not None and session.open and (session.process.node.id, self._region(k)) == (server, region):
                session.open = False
                presented = self.stolen.get(k, k)
                self._step(session.process, ClientDisconnected(presented, session, now=session.process.now()))

    def heal_region(self, server: int, region: int) -> None:
        """Restore the path between a server and the clients in a region."""
        self._region_cuts.discard((server, region))
        self._connect_soon(k for k in self.places.clients_of(server) if self._region(k) == region)

    def isolate(self, region: int) -> None:
        """Partition a region from all others."""
        servers, clients = self._across(region)
        for pair in servers:
            self.cut(*pair)
        for pair in clients:
            self.cut_region(*pair)

    def rejoin(self, region: int) -> None:
        """End the partition of a region."""
        servers, clients = self._across(region)
        for pair in servers:
            self.heal(*pair)
        for pair in clients:
            self.heal_region(*pair)

    def _across(self, region: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """Return the pairs of servers, and of a server and a region, that a partition of this region separates."""
        inside = {i: self.places.server_regions[i] == region for i in self.places.servers}
        regions = sorted(set(self.places.client_regions))
        return (
            [(i, j) for i in inside for j in inside if inside[i] and not inside[j]],
            [(i, other) for i in inside for other in regions if inside[i] != (other == region)],
        )

    # --- Changes of clients ------------------------------------------------------------------------------------------

    def come(self, client: int, server: int) -> None:
        """Assign a client without a server to a server."""
        self.places.move_client(client, server)
        self.links.renew(client)
        self._connect_soon([client])

    def move(self, client: int, server: int) -> None:
        """Move a client to another server. It keeps the updates that its former server may not have saved."""
        self._leave_server(client)
        self.come(client, server)
