"""What survives when processes are killed and connections break."""

from typing import Any

import pytest
from every_algorithm import ALGORITHMS, BUILT_IN_FIRST
from gossip import Gossip
from hypothesis import example, given, settings
from hypothesis import strategies as st
from processes import FAULTS, PEACE, Fault, arrange, gossip_world, play
from test_cluster import heterogeneous

from spyker.algorithms.spyker import Spyker
from spyker.placement import Topology
from spyker.protocol.codec import Sizes
from spyker.protocol.facts import UpdateApplied
from spyker.protocol.messages import Token
from spyker.protocol.state import Unpacker
from spyker.records import ServerResumed
from spyker.sim.cluster import ClusterSimulation

SAVE_SECONDS = st.sampled_from([0.0, 0.013, 0.11])
CLIENTS = st.sampled_from([[3], [2, 1], [1, 2, 1], [1, 1, 2, 1]])


def saved(world: ClusterSimulation, i: int) -> list[int]:
    """The answers whose effect is on a server's disk."""
    checkpoint = world.disks[i].read()
    if checkpoint is None:
        return []
    numbers, vectors = checkpoint
    found: list[int] = Unpacker(vectors, Gossip.kinds(), Sizes(2, 1)).unpack(numbers["server"]["applied"])
    return found


class Watcher:
    """Looks at a world of gossiping servers again and again."""

    def __init__(self, world: ClusterSimulation) -> None:
        self.world = world
        self.before: list[list[int]] = [[] for _ in world.places.servers]
        self.look()

    def look(self) -> None:
        world, now = self.world, self.world.clock.now
        for i, process in enumerate(world.processors):
            on_disk = saved(world, i)
            assert on_disk[: len(self.before[i])] == self.before[i], "what was saved is never lost"
            self.before[i] = on_disk
            server = process.server
            assert isinstance(server, Gossip)
            if process.alive:
                assert server.applied[: len(on_disk)] == on_disk
                assert len(set(server.applied)) == len(server.applied), "no answer counts twice"
                for j, heard in server.heard.items():
                    assert heard == saved(world, j)[: len(heard)], "nobody is told what could be lost, nor twice"
        world.schedule(now + 0.0301, self.look)


@settings(max_examples=40, deadline=None)
@given(clients=CLIENTS, faults=FAULTS, save_seconds=SAVE_SECONDS)
def test_each_answer_counts_once_and_everybody_is_told_once_in_order(
    clients: list[int], faults: list[Fault], save_seconds: float
) -> None:
    world, facts = gossip_world(clients)
    arrange(world, faults, save_seconds)
    watcher = Watcher(world)
    marks: list[list[int]] = []
    world.schedule(3.0, lambda: marks.extend(list(process.server.applied) for process in world.processors))
    play(world)
    assert not world.rejected["lineage"]
    everything = [answer for process in world.processors for answer in process.server.applied]
    assert len(everything) == len(set(everything)), "nor does one count at two servers"
    assert world.updates == len(everything)
    assert world.updates_per_client.tolist() == [
        sum(answer // 1000 == k for answer in everything) for k in range(sum(clients))
    ]
    for i, process in enumerate(world.processors):
        for j, heard in process.server.heard.items():
            assert heard[: len(marks[j])] == marks[j], f"server {i} has heard all that server {j} had to say by then"
    for k, home in enumerate(world.places.homes):
        lately = world.processors[home].server.applied[len(marks[home]) :]
        assert k in {answer // 1000 for answer in lately}, "in the end every client trains on, where it is"
    versions_rise(facts, len(clients))
    watcher.look()


def versions_rise(facts: list[tuple[float, Any]], servers: int) -> None:
    """Every update is the next one of what its server has, and a restart takes back what was not saved."""
    versions = [0] * servers
    for _, fact in facts:
        if isinstance(fact, UpdateApplied):
            assert fact.version == versions[fact.server] + 1 or fact.version == 1
            versions[fact.server] = fact.version
        elif isinstance(fact, ServerResumed):
            assert fact.version == versions[fact.server] - fact.lost_updates
            versions[fact.server] = fact.version


def tokens(world: ClusterSimulation) -> int:
    """How many there are, at the servers and on the way."""
    count = 0
    for process in world.processors:
        server = process.server
        assert isinstance(server, Spyker)
        count += server.token is not None
        for j, box in process.node.outboxes.items():
            handled = world.processors[j].node._peers.handled.get(process.node.id, 0)
            count += sum(isinstance(p.message, Token) for p in box.entries if p.sequence > handled)
    return count


@settings(max_examples=20, deadline=None)
@example(faults=[(0.30123, "crash", 2, 0), (1.38123, "restart", 2, 0)], save_seconds=0.11)  # a replaced message was
@example(faults=[(0.00123, "crash", 1, 0)], save_seconds=0.0)  # waited for
@given(faults=FAULTS, save_seconds=SAVE_SECONDS)
@pytest.mark.parametrize("algorithm", BUILT_IN_FIRST)
def test_every_algorithm_goes_on_after_everything_is_mended(
    emulate: Any, algorithm: str, faults: list[Fault], save_seconds: float
) -> None:
    table = heterogeneous(algorithm, 1)
    table["world"] |= {"clients": [2, 1, 2], "bandwidth-mbit": 10.0}
    table["training"]["delay-ms"] = [30.0, 45.0, 60.0, 20.0, 50.0]
    table["duration"] = 4.5
    if "fraction" in table.get(algorithm, {}):
        table[algorithm] = {"fraction": 1.0}
    worlds: list[ClusterSimulation] = []

    def watched(world: ClusterSimulation) -> None:
        worlds.append(world)
        arrange(world, faults, save_seconds)
        if algorithm == "spyker":
            count_tokens(world)

    def count_tokens(world: ClusterSimulation) -> None:
        if world.processors and all(process.alive and process.node.server for process in world.processors):
            assert tokens(world) == 1
        world.schedule(world.clock.now + 0.0301, count_tokens, world)

    facts, summary = emulate(table, watched)
    (world,) = worlds
    assert not world.rejected["lineage"]
    late = [fact for fact in facts if fact["t"] > PEACE + 1.3]
    assert {fact["client"] for fact in late if fact["kind"] == "update"} == set(range(5)), "everybody trains on"
    if ALGORITHMS[algorithm].topology is not Topology.SINGLE:
        kinds = ["cloud-round"] if ALGORITHMS[algorithm].topology is Topology.CLOUD else ["sync", "early-sync"]
        assert [fact for fact in late if fact["kind"] in kinds], "and servers exchange their models"
    assert summary["updates"] == sum(summary["updates_per_client"])


# --- One promise at a time --------------------------------------------------------------------------------------------


def updates(facts: list[tuple[float, Any]], since: float, until: float = 9.0, **wanted: int) -> list[Any]:
    """The updates of a time, of a server or a client."""
    found = [fact for t, fact in facts if since <= t < until and isinstance(fact, UpdateApplied)]
    return [fact for fact in found if all(getattr(fact, name) == value for name, value in wanted.items())]


def test_a_killed_process_does_nothing_and_its_clients_come_back_when_there_is_a_new_one() -> None:
    world, facts = gossip_world([2, 1])
    world.reconnect = 0.2
    world.schedule(1.0, world.crash, 0)
    world.schedule(2.0, world.restart, 0)
    play(world)
    assert not updates(facts, 1.0, 2.2, server=0)
    assert {fact.client for fact in updates(facts, 2.2, server=0)} == {0, 1}
    assert updates(facts, 1.0, 2.0, server=1), "the other one goes on"
    ((t, resumed),) = [(t, fact) for t, fact in facts if isinstance(fact, ServerResumed)]
    assert (t, resumed.server) == (2.0, 0)
    assert resumed.version + resumed.lost_updates == len(updates(facts, 0.0, 1.0, server=0))


def test_a_process_that_was_killed_before_its_first_checkpoint_begins_anew() -> None:
    world, facts = gossip_world([2, 1])
    world.reconnect = 0.1
    world.disks[0].seconds = 0.5
    world.schedule(0.4, world.crash, 0)
    world.schedule(0.6, world.restart, 0)
    play(world)
    assert not [fact for _, fact in facts if isinstance(fact, ServerResumed)]
    assert updates(facts, 0.6, server=0)[0].version == 1
    assert not world.rejected["lineage"]
    assert world.processors[1].server.heard[0], "nobody had heard of what was lost"


def test_a_server_that_lost_its_disk_learns_it_from_the_others_and_waits_to_be_let_in() -> None:
    world, facts = gossip_world([2, 1])
    world.reconnect = 0.1
    world.schedule(1.0, lambda: world.crash(0, lose_disk=True))
    world.schedule(1.5, world.restart, 0)
    play(world)
    assert world.rejected["lineage"] >= 2, "in both directions, again and again"
    assert [(i, why.partition(":")[0]) for i, why in world.stopped] == [(0, "outdated")]
    assert not updates(facts, 1.8, server=0), "what its clients would train now would be lost"
    assert len(world.processors[1].server.heard[0]) <= len(updates(facts, 0.0, 1.0, server=0))


def test_after_a_cut_the_exchange_goes_on_where_it_was() -> None:
    world, facts = gossip_world([2, 1])
    world.reconnect = 0.1
    heard = []
    world.schedule(1.0, world.cut, 0, 1)
    world.schedule(1.99, lambda: heard.append(list(world.processors[1].server.heard[0])))
    world.schedule(2.0, world.heal, 0, 1)
    play(world)
    assert len(heard[0]) < len(updates(facts, 0.0, 1.0, server=0))
    told = world.processors[0].server.applied
    assert world.processors[1].server.heard[0] == told[: len(world.processors[1].server.heard[0])]
    assert len(world.processors[1].server.heard[0]) > len(updates(facts, 0.0, 3.5, server=0))


def test_a_region_that_is_cut_off_trains_on_and_its_answers_arrive_later() -> None:
    world, facts = gossip_world([2, 1])
    world.reconnect = 0.1
    world.schedule(1.0, world.cut_region, 0, 0)
    world.schedule(2.0, world.heal_region, 0, 0)
    play(world)
    assert len(updates(facts, 1.01, 2.1, server=0)) == 0
    assert len(updates(facts, 2.1, 2.12, server=0)) == 2, "what was trained in the meantime"
    assert world.processors[0].node.clients[0].member


def test_a_moved_client_trains_on_at_the_other_server() -> None:
    world, facts = gossip_world([2, 1])
    world.reconnect = 0.1
    world.schedule(1.0, world.move, 0, 1)
    play(world)
    assert not updates(facts, 1.0, server=0, client=0)
    assert len(updates(facts, 1.1, server=1, client=0)) > 10
    assert not world.processors[0].node.clients[0].member
    assert world.places.clients_of(1) == [0, 2]


def test_a_client_that_left_comes_back_elsewhere() -> None:
    world, facts = gossip_world([2, 1])
    world.schedule(0.5, world.leave, 0)
    world.schedule(1.0, world.come, 0, 1)
    play(world)
    assert not updates(facts, 0.5, 1.0, client=0)
    assert {fact.server for fact in updates(facts, 1.0, client=0)} == {1}


def test_a_full_disk_stops_what_servers_tell_each_other_until_there_is_room() -> None:
    world, _ = gossip_world([2, 1])
    heard = []

    def fill(full: bool) -> None:
        world.disks[0].full = full
        heard.append(len(world.processors[1].server.heard[0]))

    for time, full in ((1.0, True), (1.1, True), (2.5, False)):
        world.schedule(time, fill, full)
    play(world)
    assert heard[1] == heard[2] < len(world.processors[1].server.heard[0])
