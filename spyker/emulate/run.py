"""One run: a scenario goes in, facts come out as they happen, and a summary at the end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from spyker.config.scenario import Scenario, latency_seconds
from spyker.emulate.clock import Clock, Stop
from spyker.emulate.judge import Judge
from spyker.emulate.links import Links
from spyker.emulate.world import Sink, World
from spyker.learn.engine import Engine
from spyker.learn.speeds import delays
from spyker.learn.task import Task
from spyker.protocol.client import Client
from spyker.protocol.registry import Topology
from spyker.protocol.server import Setup, Work
from spyker.records import run_started
from spyker.records.summary import WAYS, Totals, kebab_kind, server_totals, summarise, target_name
from spyker.vectors import Vector


@dataclass(frozen=True, slots=True)
class Places:
    """Where servers and clients are, and who belongs to whom. Clients are numbered in the order of regions."""

    server_regions: list[int]
    client_regions: list[int]
    client_servers: list[int]
    rosters: tuple[dict[int, int], ...]


def place(scenario: Scenario, task: Task) -> Places:
    """Put servers where the algorithm wants them and give each client to its nearest."""
    world, topology = scenario.world, scenario.chosen.topology
    assert world.clients is not None
    client_regions = [region for region, count in enumerate(world.clients) for _ in range(count)]
    sizes = [task.size(k) for k in range(len(client_regions))]
    if topology is Topology.SINGLE:
        everybody = dict(enumerate(sizes))
        return Places([world.server_region], client_regions, [0] * len(sizes), (everybody,))
    rosters: tuple[dict[int, int], ...] = tuple({} for _ in world.regions)
    for k, region in enumerate(client_regions):
        rosters[region][k] = sizes[k]
    server_regions = list(range(len(world.regions)))
    if topology is Topology.CLOUD:
        server_regions.append(world.server_region)
    return Places(server_regions, client_regions, client_regions, rosters)


def run(scenario: Scenario, task: Task, engine: Engine, sink: Sink, stop: Stop | None = None) -> dict[str, Any]:
    """Run a resolved scenario, tell ``sink`` every fact, and return the summary.

    A run that ``stop`` ends early has a summary of what happened until then.
    """
    places = place(scenario, task)
    initial = task.initial()
    setup = Setup(places.rosters, initial, scenario.training.rate, scenario.parameters, scenario.seed, task.mix)
    servers = [scenario.chosen.build(i, setup) for i in range(len(places.server_regions))]
    learners = servers[: setup.servers]  # without the cloud
    clock = Clock(scenario.duration)
    started = run_started(scenario, task.metric.name, task.metric.higher_is_better)
    judge = Judge(clock, engine, started, scenario.evaluation, sink)
    world = World(
        servers,
        [Client(k, server) for k, server in enumerate(places.client_servers)],
        links=Links(
            latency_seconds(scenario.world),
            scenario.world.bandwidth_mbit * 1e6,
            places.server_regions,
            places.client_regions,
            places.client_servers,
        ),
        delays=delays(scenario),
        costs={
            Work.NOTHING: 0.0,
            Work.MIX: scenario.world.mix_ms / 1000,
            Work.AVERAGE: scenario.world.average_ms / 1000,
        },
        engine=engine,
        clock=clock,
        parameters=initial.size,
        sink=judge.fact,
    )
    try:
        sink(0.0, started, None)
        world.start()
        judge.evaluate(world, learners)
        finished = clock.run(stop or Stop())
        judge.settle()
    finally:
        engine.cancel()
    return summarise(started, count(scenario, initial, world, judge, places, finished))


def count(scenario: Scenario, initial: Vector, world: World, judge: Judge, places: Places, finished: bool) -> Totals:
    """The totals of a run."""
    reached = {target_name(target): judge.reached(target) for target in scenario.evaluation.targets}
    return Totals(
        finished=finished,
        time=world.clock.now,
        parameters=initial.size,
        final=judge.history[-1][1],
        reached={target: hit for target, hit in reached.items() if hit is not None},
        updates_per_client=world.updates_per_client,
        synchronisations=world.synchronisations,
        longest_queue=max(processor.longest for processor in world.processors),
        bytes=dict(zip(WAYS, (world.links.bytes_down, world.links.bytes_up, world.links.bytes_between), strict=True)),
        messages={kebab_kind(kind.__name__): count for kind, count in world.messages.items() if count},
        servers=[
            server_totals(
                scenario.world.regions[places.server_regions[i]],
                world.processors[i].server,
                clients=len(roster),
                updates=world.updates_per_server[i],
                longest_queue=world.processors[i].longest,
            )
            for i, roster in enumerate(places.rosters)
        ],
        duration=scenario.duration,
        events=world.clock.happened,
    )
