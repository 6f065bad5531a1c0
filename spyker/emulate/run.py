"""One run: a scenario goes in, facts come out as they happen, and a summary at the end."""

from __future__ import annotations

import re
from collections.abc import Mapping
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
from spyker.version import __version__

WEIGHTS_SHOWN = 64  # the summary holds the weights of models with up to so many parameters


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
    judge = Judge(clock, engine, task.metric, scenario.evaluation, sink)
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
        world.start()
        judge.evaluate(world, learners)
        finished = clock.run(stop or Stop())
        judge.settle()
    finally:
        engine.cancel()
    return summarise(scenario, task, world, judge, places, finished)


def summarise(
    scenario: Scenario, task: Task, world: World, judge: Judge, places: Places, finished: bool
) -> dict[str, Any]:
    """The totals of a run. Only what follows from the scenario: no wall-clock time, no machine."""
    reached = {f"{target:g}": judge.reached(target) for target in scenario.evaluation.targets}
    last = judge.history[-1][1]
    servers: list[Mapping[str, Any]] = []
    for i, roster in enumerate(places.rosters):
        processor = world.processors[i]
        server = processor.server
        weights = server.weights.snapshot()
        servers.append(
            {
                "region": scenario.world.regions[places.server_regions[i]],
                "clients": len(roster),
                "updates": world.updates_per_server[i],
                "age": server.age,
                "version": server.version,
                "longest_queue": processor.longest,
                **({"weights": weights.tolist()} if weights.size <= WEIGHTS_SHOWN else {}),
            }
        )
    return {
        "spyker": __version__,
        "algorithm": scenario.algorithm,
        "title": scenario.chosen.title,
        "task": scenario.task.name,
        "seed": scenario.seed,
        "duration": scenario.duration,
        "finished": finished,
        "time": round(world.clock.now, 9),
        "events": world.clock.happened,
        "parameters": task.initial().size,
        "metric": {"name": task.metric.name, "higher_is_better": task.metric.higher_is_better},
        "final": {"mean": last.mean, "worst": last.worst, "best": last.best, "averaged": last.averaged},
        "time_to_target": {target: hit and hit[0] for target, hit in reached.items()},
        "updates_to_target": {target: hit and hit[1] for target, hit in reached.items()},
        "updates": world.updates,
        "updates_per_server": world.updates_per_server[: len(servers)],
        "updates_per_client": world.updates_per_client.tolist(),
        "synchronisations": world.synchronisations,
        "longest_queue": max(processor.longest for processor in world.processors),
        "bytes": {
            "total": world.links.total_bytes,
            "server-to-client": world.links.bytes_down,
            "client-to-server": world.links.bytes_up,
            "server-to-server": world.links.bytes_between,
        },
        "messages": {kebab_kind(kind.__name__): count for kind, count in world.messages.items() if count},
        "servers": servers,
    }


def kebab_kind(name: str) -> str:
    """``PeerModel`` as ``peer-model``."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name).lower()
