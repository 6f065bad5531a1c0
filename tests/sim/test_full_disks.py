"""A server whose disk takes no checkpoints: it keeps its clients, and the others exchange models without it."""

from typing import Any

import pytest
from test_survival import QUICK_ALL, QUICK_FLAT, TOKENS, Played, four, pairs

from spyker.sim.cluster import ClusterSimulation

FULL, ROOM = 5.0, 30.0


def fill(world: ClusterSimulation, server: int, full: bool) -> None:
    world.disks[server].full = full


def full_disk(server: int) -> Any:
    def faults(world: ClusterSimulation) -> None:
        world.schedule(FULL, fill, world, server, True)
        world.schedule(ROOM, fill, world, server, False)

    return faults


@pytest.mark.parametrize("algorithm", QUICK_FLAT)
@pytest.mark.parametrize("victim", [0, 2])
def test_a_server_that_cannot_save_stops_the_exchange_of_nobody(emulate: Any, algorithm: str, victim: int) -> None:
    run = Played(emulate, four(algorithm, 45.0), full_disk(victim))
    others = [i for i in range(4) if i != victim]
    for i in others:
        assert run.times("peer-suspected", server=i, peer=victim)
        assert len(run.times("merge", after=12.0, before=ROOM, server=i)) > 5
        assert not run.times("merge", after=12.0, before=ROOM, server=i, peer=victim)
        assert run.times("peer-trusted", after=ROOM, server=i, peer=victim)
        if algorithm in TOKENS or victim > 0:  # Sync-Spyker merges the others into the first server's model
            assert len(run.times("merge", after=ROOM + 2, server=i, peer=victim)) > 2, "it takes part again"
    assert len(run.times("merge", after=ROOM + 2, server=victim)) > 2
    assert max(later - earlier for earlier, later in pairs(run.times("sync", after=FULL))) < 8.0
    assert len(run.epochs()) == 1
    if algorithm in TOKENS:
        assert len(run.holders()) <= 1


@pytest.mark.parametrize("algorithm", QUICK_ALL)
def test_a_server_that_cannot_save_keeps_serving_its_clients_and_says_so(emulate: Any, algorithm: str) -> None:
    reports: list[tuple[str, str, bool, bool]] = []

    def look(world: ClusterSimulation) -> None:
        now = world.clock.now
        mine, theirs = (world.processors[i].node.status(now) for i in (2, 0))
        may_lead = world.processors[2].node.may_lead(now)
        reports.append((mine.members[2].state, theirs.members[2].state, mine.cannot_save, may_lead))

    def faults(world: ClusterSimulation) -> None:
        full_disk(2)(world)
        for time in (4.0, 20.0, 35.0):
            world.schedule(time, look, world)

    run = Played(emulate, four(algorithm, 40.0), faults)
    assert reports[0] == reports[2] == ("here", "there", False, True)
    assert reports[1] == ("here, cannot save", "cannot save", True, False)
    for client in (4, 5):
        served = run.times("update", after=FULL, before=ROOM, server=2, client=client)
        assert len(served) > 30, "its clients wait for nobody, until they keep the maximum of unsaved updates"
        assert run.times("update", after=ROOM + 1, server=2, client=client)
    (failed,) = run.times("saving-failed", server=2)
    (again,) = run.times("saving-resumed", server=2)
    assert FULL + 1.0 < failed < FULL + 3.0
    assert ROOM < again < ROOM + 2.0


@pytest.mark.parametrize("algorithm", TOKENS)
def test_a_holder_that_cannot_save_loses_the_token_to_another_server_and_never_has_it_twice(
    emulate: Any, algorithm: str
) -> None:
    usable: list[int] = []
    victims: list[int] = []

    def strike(world: ClusterSimulation) -> None:
        holder = next((p.node.id for p in world.processors if p.server.has_token), None)
        if holder is None:
            world.schedule(world.clock.now + 0.01, strike, world)
        else:
            victims.append(holder)
            world.disks[holder].full = True
            world.schedule(ROOM, fill, world, holder, False)

    def count(world: ClusterSimulation) -> None:
        now = world.clock.now
        usable.append(sum(p.server.has_token and p.node.may_lead(now) for p in world.processors))
        world.schedule(now + 0.05, count, world)

    def faults(world: ClusterSimulation) -> None:
        world.schedule(FULL, strike, world)
        world.schedule(FULL, count, world)

    run = Played(emulate, four(algorithm, 45.0), faults)
    (victim,) = victims
    assert run.epochs() == {1}, "one vote, for one new token"
    assert max(usable) == 1
    assert len(run.times("merge", after=12.0, before=ROOM)) > 20
    assert not run.times("sync", after=12.0, before=ROOM, server=victim)
    assert run.times("merge", after=ROOM + 2, peer=victim)


def test_a_disk_that_is_slow_and_works_is_waited_for(emulate: Any) -> None:
    def faults(world: ClusterSimulation) -> None:
        world.schedule(4.0, setattr, world.disks[2], "seconds", 0.9)  # nearly as long as suspect-after
        world.schedule(10.0, setattr, world.disks[2], "seconds", 2.0)  # and longer

    run = Played(emulate, four("spyker", 40.0), faults)
    assert not run.times("saving-failed")
    assert not run.times("peer-suspected")
    assert len(run.times("merge", after=15.0, server=0, peer=2)) > 2


def test_a_disk_that_does_not_respond_is_not_waited_for(emulate: Any) -> None:
    def faults(world: ClusterSimulation) -> None:
        world.schedule(FULL, setattr, world.disks[2], "seconds", 1000.0)

    run = Played(emulate, four("spyker"), faults)
    assert run.times("saving-failed", server=2)
    assert len(run.times("merge", after=12.0, server=0, peer=1)) > 5
