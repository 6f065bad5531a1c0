"""One run: a scenario goes in, facts come out as they happen, and a summary at the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from spyker import __version__
from spyker.config.scenario import Scenario, latency_seconds
from spyker.emulate.clock import Clock, Stop
from spyker.emulate.hosted import HostedWorld
from spyker.emulate.judge import Judge
from spyker.emulate.links import Links
from spyker.emulate.world import Emulation, Sink, World
from spyker.learn.engine import Engine
from spyker.learn.speeds import delays
from spyker.learn.task import Task
from spyker.placement import Placement
from spyker.protocol.server import Server, Setup, Work

WEIGHTS_SHOWN = 64  # the summary holds the weights of models with up to so many parameters


def run(
    scenario: Scenario,
    task: Task,
    engine: Engine,
    sink: Sink,
    stop: Stop | None = None,
    fate: Callable[[HostedWorld], None] | None = None,
) -> dict[str, Any]:
    """Run a resolved scenario, tell ``sink`` every fact, and return the summary.

    A run that ``stop`` ends early has a summary of what happened until then. With ``fate`` servers are whole processes,
    and it may arrange what happens to them before they begin.
    """
    places = scenario.placement()
    clock = Clock(scenario.duration, places.client_count)
    judge = Judge(clock, engine, task.metric, scenario.evaluation, sink)
    world = make_world(scenario, task, engine, clock, judge.fact, places, hosted=fate is not None)
    if fate is not None:
        assert isinstance(world, HostedWorld)
        fate(world)
    try:
        world.start()
        judge.evaluate(world, places.learners)
        finished = clock.run(stop or Stop())
        judge.settle()
    finally:
        engine.cancel()
    return summarise(scenario, task, world, judge, places, finished)


def make_world(
    scenario: Scenario, task: Task, engine: Engine, clock: Clock, sink: Sink, places: Placement, *, hosted: bool
) -> Emulation:
    """The world of a scenario, of bare servers or of whole processes."""
    setup = Setup(
        len(places.learners),
        places.client_count,
        task.initial(),
        scenario.training.rate,
        scenario.parameters,
        scenario.seed,
        task.mix,
    )
    clients = [scenario.chosen.client(k, home or 0) for k, home in enumerate(places.homes)]
    surroundings: dict[str, Any] = {
        "links": Links(latency_seconds(scenario.world), scenario.world.bandwidth_mbit * 1e6, places),
        "delays": delays(scenario),
        "costs": {
            Work.NOTHING: 0.0,
            Work.MIX: scenario.world.mix_ms / 1000,
            Work.AVERAGE: scenario.world.average_ms / 1000,
        },
        "engine": engine,
        "clock": clock,
        "sink": sink,
    }

    def build(i: int, roster: Mapping[int, int]) -> Server:
        return scenario.chosen.build(i, setup, roster)

    if hosted:
        return HostedWorld(build, clients, task.size, places, **surroundings)
    rosters: dict[int, dict[int, int]] = {i: {} for i in places.servers}
    for k, home in enumerate(places.homes):
        if home is not None:
            rosters[home][k] = task.size(k)
    return World([build(i, roster) for i, roster in rosters.items()], clients, **surroundings)


def summarise(
    scenario: Scenario, task: Task, world: Emulation, judge: Judge, places: Placement, finished: bool
) -> dict[str, Any]:
    """The totals of a run. Only what follows from the scenario: no wall-clock time, no machine."""
    reached = {f"{target:g}": judge.reached(target) for target in scenario.evaluation.targets}
    last = judge.history[-1][1]
    servers: list[Mapping[str, Any]] = []
    for i in places.learners:
        processor = world.processors[i]
        server = processor.server
        weights = server.weights.snapshot()
        servers.append(
            {
                "region": scenario.world.regions[places.server_regions[i]],
                "clients": len(places.clients_of(i)),
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
        "messages": dict(sorted(world.messages.items())),
        "servers": servers,
    }
