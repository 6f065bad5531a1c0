"""A small hosted world, and random fates for it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from gossip import Gossip, Numbered
from hypothesis import strategies as st

from spyker.engines.engine import InProcessEngine
from spyker.placement import Placement, Topology
from spyker.protocol.client import Client
from spyker.protocol.server import NoParameters, Setup, Work
from spyker.records import Fact
from spyker.sim.clock import Clock, StopRequest
from spyker.sim.cluster import ClusterSimulation
from spyker.sim.links import Links
from spyker.sim.world import BareServerSimulation

Fault: TypeAlias = tuple[float, str, int, int]
PEACE = 2.0
"""When everything is mended."""
BLOWS = [*("crash", "restart") * 2, "cut", "heal", "cut_region", "heal_region", "move", "leave", "fill", "clear"]
FAULTS: st.SearchStrategy[list[Fault]] = st.lists(
    st.tuples(
        st.integers(0, 190).map(lambda n: n / 100 + 0.00123),  # at no time at which anything else happens
        st.sampled_from(BLOWS),
        st.integers(0, 11),
        st.integers(0, 11),
    ),
    max_size=14,
)


def arrange(world: ClusterSimulation, faults: list[Fault], save_seconds: float = 0.0) -> None:
    """Have these things happen, and everything mended in the end. Numbers stand for whoever they fall on."""
    n = len(world.places.learners)
    everybody = len(world.places.servers)
    clients = len(world.pending)
    world.reconnect = 0.1
    world.rules = replace(
        world.rules, client_timeout=0.3, checkpoint_updates=3, checkpoint_seconds=0.2, save_retry=0.05, join_timeout=0.3
    )

    def fill(server: int, full: bool) -> None:
        world.disks[server].full = full

    for disk in world.disks:
        disk.seconds = save_seconds
    for time, what, a, b in faults:
        match what:
            case "crash" | "restart":
                world.schedule(time, getattr(world, what), a % everybody)
            case "cut" | "heal" if everybody > 1:
                world.schedule(time, getattr(world, what), a % everybody, (a + 1 + b % (everybody - 1)) % everybody)
            case "cut_region" | "heal_region":
                world.schedule(time, getattr(world, what), a % n, b % n)
            case "move":
                world.schedule(time, world.move, a % clients, b % n)
            case "leave":
                world.schedule(time, world.leave, a % clients)
            case "fill" | "clear":
                world.schedule(time, fill, a % everybody, what == "fill")
    world.schedule(PEACE, mend, world)


def mend(world: ClusterSimulation) -> None:
    """Everything works again, and every client has a server."""
    servers = world.places.servers
    for disk in world.disks:
        disk.full = False
    for i in servers:
        world.restart(i)
        for j in servers:
            if i != j:
                world.heal(i, j)
        for region in servers:
            world.heal_region(i, region)
    for k, home in enumerate(world.places.homes):
        if home is None:
            world.come(k, world.places.learners[k % len(world.places.learners)])


def gossip_world(
    clients: list[int], end: float = 3.8, kind: type[BareServerSimulation | ClusterSimulation] = ClusterSimulation
) -> tuple[Any, list[tuple[float, Fact]]]:
    """Servers that gossip, with so many clients each, and the facts that they state."""
    places = Placement.begin(Topology.FLAT, clients)
    task, facts = Numbered(), []
    setup = Setup(len(clients), sum(clients), task.initial(), 0.1, NoParameters())
    latency = [[0.001 if i == j else 0.01 + 0.003 * i + 0.007 * j for j in places.servers] for i in places.servers]
    surroundings: dict[str, Any] = {
        "links": Links(latency, 1e6, places),
        "delays": np.random.default_rng(1).uniform(0.05, 0.15, sum(clients)).tolist(),
        "costs": {Work.NOTHING: 0.0, Work.MIX: 0.002, Work.AVERAGE: 0.01},
        "engine": InProcessEngine(task),
        "clock": Clock(end),
        "sink": lambda t, fact, queue: facts.append((t, fact)),
    }

    def build(i: int, roster: Mapping[int, int]) -> Gossip:
        return Gossip(i, setup, roster)

    nodes = [Client(k, home or 0) for k, home in enumerate(places.homes)]
    if kind is ClusterSimulation:
        return ClusterSimulation(build, nodes, task.size, places, **surroundings), facts
    servers = [build(i, dict.fromkeys(places.clients_of(i), 1)) for i in places.servers]
    return BareServerSimulation(servers, nodes, **surroundings), facts


def play(world: BareServerSimulation | ClusterSimulation) -> None:
    """Let everything happen."""
    world.start()
    assert world.clock.run(StopRequest())
