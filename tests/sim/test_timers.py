"""Timers of servers: the same with bare servers and with whole processes."""

from typing import Any

import pytest
from gossip import SECONDS, Gossip
from processes import gossip_world, play

from spyker.protocol.messages import Join
from spyker.protocol.server import Server, Work
from spyker.sim.clock import Clock, StopRequest
from spyker.sim.cluster import ClusterSimulation
from spyker.sim.processor import Processor
from spyker.sim.timers import SimTimers
from spyker.sim.world import BareServerSimulation


def states(world: Any) -> list[Any]:
    return [(p.server.applied, p.server.told, p.server.heard, p.longest) for p in world.processors]


@pytest.mark.parametrize("clients", [[3], [2, 1], [5, 1, 3]])
def test_an_algorithm_with_a_timer_does_the_same_in_both_worlds(clients: list[int]) -> None:
    (bare, bare_facts), (hosted, hosted_facts) = (
        gossip_world(clients, kind=kind) for kind in (BareServerSimulation, ClusterSimulation)
    )
    play(bare)
    play(hosted)
    assert hosted_facts == bare_facts
    assert states(hosted) == states(bare)
    assert hosted.messages == bare.messages
    assert all(process.server.told for process in hosted.processors)


@pytest.mark.parametrize("save_seconds", [0.0, 0.02])
def test_a_timer_runs_on_after_a_restart(save_seconds: float) -> None:
    world, _ = gossip_world([2, 1])
    world.reconnect = 0.1
    told = []
    for disk in world.disks:
        disk.seconds = save_seconds
    world.schedule(1.03, world.crash, 0)
    world.schedule(1.5, world.restart, 0)
    world.schedule(1.5 + SECONDS / 2, lambda: told.append(world.processors[0].server.told))
    play(world)
    server = world.processors[0].server
    assert server.told > told[0] > 0
    assert world.processors[1].server.heard[0] == server.applied[: len(world.processors[1].server.heard[0])]


def test_a_dead_process_hears_no_timer() -> None:
    world, _ = gossip_world([2, 1])
    told = []
    world.schedule(1.0, world.crash, 0)
    world.schedule(1.0, lambda: told.append(world.processors[0].server.told))
    play(world)
    assert [world.processors[0].server.told] == told
    assert len(world.processors[0].server.applied) > told[0], "there was something to tell"


def test_timers_start_anew_and_stop() -> None:
    clock, rung = Clock(10.0), []
    timers = SimTimers(clock, lambda name: rung.append((clock.now, name)))
    timers.start("a", 1.0)
    timers.start("b", 1.0)
    timers.start("c", 1.0)
    clock.at(0.5, lambda _a, _b: timers.start("a", 1.0), None, None)
    clock.at(0.5, lambda _a, _b: timers.stop("b"), None, None)
    clock.run(StopRequest())
    assert rung == [(1.0, "c"), (1.5, "a")]


class Impatient(Gossip):
    """Stops its timer at a Join; an expiry after that is a mistake."""

    def receive(self, sender: int, message: Any) -> None:
        self.stop_timer("impatience") if isinstance(message, Join) else self.start_timer("impatience", 1.0)

    def work(self, sender: int, message: Any) -> Work:
        return Work.MIX

    def expired(self, timer: str) -> None:
        raise AssertionError(timer)


def test_a_timer_that_is_stopped_while_it_waits_for_its_turn_is_not_served() -> None:
    world, _ = gossip_world([1], kind=BareServerSimulation)
    server: Server = world.processors[0].server
    server.__class__ = Impatient
    processor = Processor(server, world.clock, {Work.NOTHING: 0.0, Work.MIX: 0.7}, world._perform)
    processor.receive(0, server.model(0.1))  # type: ignore[arg-type]
    # Served at 0.7 s: the timer is due at 1.7 s. The next is in service from 1.2 to 1.9 s.
    world.clock.at(1.2, processor.receive, 0, Join(1))
    assert world.clock.run(StopRequest())
    assert not processor.queue
