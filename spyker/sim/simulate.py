"""Simulation of one scenario: yields facts during the run and a summary at the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from spyker.config.client_privacy import client_privacy
from spyker.config.masking import masking_setup
from spyker.config.scenario import SERVERS, STOP, Scenario
from spyker.config.world import latency_seconds
from spyker.engines.engine import Engine
from spyker.placement import Placement
from spyker.protocol.client import Client
from spyker.protocol.client_coder import ClientCoder
from spyker.protocol.codec import Sizes
from spyker.protocol.masked_client import MaskingClient
from spyker.protocol.server import Server, Setup, Work
from spyker.records import run_started
from spyker.records.client_scores import ClientScores
from spyker.records.run_warnings import ScoreHistory
from spyker.records.summary import WAYS, FailedClient, Totals, server_totals, summarise, target_name
from spyker.sim.adversaries import Adversaries
from spyker.sim.client_failures import ClientFailures
from spyker.sim.clock import Clock, StopRequest
from spyker.sim.cluster import ClusterSimulation
from spyker.sim.evaluator import Evaluator
from spyker.sim.links import Links
from spyker.sim.round_times import round_times
from spyker.sim.sim_noise import sim_noise
from spyker.sim.sim_seals import SimOpener, SimSealer
from spyker.sim.world import BareServerSimulation, Simulation, Sink
from spyker.tasks.client_delays import delays
from spyker.tasks.initial_model import InitialModel
from spyker.tasks.registry import evaluation_interval, masked_scores, rate_of, with_task_defaults
from spyker.tasks.task import Task, limits_by_name
from spyker.vectors import Vector

OnEnd: TypeAlias = Callable[[float, Callable[[int], Vector]], None]
"""Called with the final time and a function that returns a server's final model."""


def simulate(
    scenario: Scenario,
    task: Task,
    engine: Engine,
    sink: Sink,
    stop: StopRequest | None = None,
    faults: Callable[[ClusterSimulation], None] | None = None,
    initial_model: InitialModel | None = None,
    on_end: OnEnd | None = None,
) -> dict[str, Any]:
    """Simulate a scenario.

    Args:
        scenario: the resolved scenario.
        task: its task.
        engine: executes trainings and evaluations.
        sink: called with every fact.
        stop: request to stop early; the summary then covers the time until the stop.
        faults: schedules faults before the start. With it, or with an outage in the scenario, complete server
            processes are simulated.
        initial_model: the initial model; default: the task's.
        on_end: called at the end, to save the final models.

    Returns:
        The summary.

    """
    scenario = with_task_defaults(scenario, task)
    places = scenario.placement()
    clock = Clock(scenario.duration, places.client_count)
    started = run_started(scenario, task.metric.name, task.metric.higher_is_better)
    client_scores = None
    if task.evaluated_by != SERVERS:
        also = {metric.name: metric.higher_is_better for metric in task.also}
        client_scores = ClientScores(started, scenario.world.clients or (), also)
    evaluator = Evaluator(clock, engine, started, scenario.evaluation, sink, task, client_scores)
    outage = scenario.world.outage
    initial = task.initial() if initial_model is None else initial_model.weights
    whole_nodes = outage is not None or faults is not None
    failures = ClientFailures(places.client_count, task, stop=scenario.training.on_client_error == STOP)
    simulation = make_simulation(
        scenario, task, engine, clock, evaluator.fact, places, initial, failures, whole_nodes=whole_nodes
    )
    if isinstance(simulation, ClusterSimulation):
        if outage is not None:
            simulation.schedule(outage.start, simulation.isolate, outage.region)
            simulation.schedule(outage.start + outage.seconds, simulation.rejoin, outage.region)
        if faults is not None:
            faults(simulation)
    try:
        sink(0.0, started, None)
        if initial_model is not None:
            sink(0.0, initial_model.fact, None)
        simulation.start()
        evaluator.evaluate(simulation, places.learners)
        finished = clock.run(stop or StopRequest())
        evaluator.settle()
        failures.check(ended=finished)
    finally:
        engine.cancel()
    if on_end is not None:
        clock.finish()  # frees what has not arrived
        on_end(clock.now, lambda i: simulation.processors[i].server.weights.peek())
    return summarise(started, totals(scenario, initial_model, simulation, evaluator, places, finished))


def make_simulation(
    scenario: Scenario,
    task: Task,
    engine: Engine,
    clock: Clock,
    sink: Sink,
    places: Placement,
    initial: Vector,
    failures: ClientFailures | None = None,
    *,
    whole_nodes: bool,
) -> Simulation:
    """Create the simulation of a scenario, with bare servers or complete processes (``whole_nodes``)."""
    setup = Setup(
        len(places.learners),
        places.client_count,
        initial,
        rate_of(scenario.training, task),
        scenario.parameters,
        scenario.seed,
        task.mix,
        now=lambda: clock.now,
        robust=scenario.robust.on(deployed=False),
        buffers=task.buffers,
        client_metrics={} if task.evaluated_by == SERVERS else limits_by_name((task.metric, *task.also)),
        masking=masking_setup(scenario, SimOpener),
        client_privacy=client_privacy(scenario, initial.size, task.buffers, sim_noise(scenario.seed)),
        compression=scenario.compression,
    )
    adversaries = Adversaries.of(scenario)
    surroundings: dict[str, Any] = {
        "links": Links(latency_seconds(scenario.world), scenario.world.bandwidth_mbit * 1e6, places),
        "delays": delays(scenario) if adversaries is None else adversaries.delays(delays(scenario)),
        "costs": {
            Work.NOTHING: 0.0,
            Work.MIX: scenario.world.mix_ms / 1000,
            Work.AVERAGE: scenario.world.average_ms / 1000,
        },
        "engine": engine,
        "clock": clock,
        "sink": sink,
        "adversaries": adversaries,
        "failures": failures,
        "evaluation_interval": evaluation_interval(scenario.evaluation, scenario.privacy, task.evaluated_by),
    }
    sizes = engine.sizes(places.client_count) if task.local else None
    size: Callable[[int], int] = task.size if sizes is None else sizes.__getitem__
    if adversaries is not None:
        size = adversaries.sizes(size)
    scored = masked_scores(scenario.privacy, task, task.evaluated_by)
    clients = sim_clients(scenario, places, size, task.buffers, scored, adversaries)
    for client in clients:
        client.coder = ClientCoder.of(scenario.compression, Sizes(initial.size, setup.servers, setup.buffers))

    def build(i: int, roster: Mapping[int, int]) -> Server:
        return scenario.chosen.create(i, setup, roster)

    if whole_nodes:
        resends = not scenario.privacy.per_client
        return ClusterSimulation(build, clients, size, places, resends=resends, **surroundings)
    rosters: dict[int, dict[int, int]] = {i: {} for i in places.servers}
    for k, home in enumerate(places.homes):
        if home is not None:
            rosters[home][k] = size(k)
    return BareServerSimulation([build(i, roster) for i, roster in rosters.items()], clients, **surroundings)


def sim_clients(
    scenario: Scenario,
    places: Placement,
    size: Callable[[int], int],
    buffers: int,
    scored: Sequence[str] = (),
    adversaries: Adversaries | None = None,
) -> list[Client]:
    """Return the clients of a simulation."""
    homes = [home or 0 for home in places.homes]
    if not scenario.privacy.masking:
        return [scenario.chosen.client(k, home) for k, home in enumerate(homes)]
    reports = scenario.privacy.report_metrics
    kinds = [MaskingClient if adversaries is None else adversaries.masking_client(k) for k in range(len(homes))]
    return [
        kind(k, home, SimSealer(scenario.seed, k), size(k), buffers, reports=reports, metrics=scored)
        for k, (home, kind) in enumerate(zip(homes, kinds, strict=True))
    ]


def totals(
    scenario: Scenario,
    initial_model: InitialModel | None,
    simulation: Simulation,
    evaluator: Evaluator,
    places: Placement,
    finished: bool,
) -> Totals:
    """Return the totals of a run."""
    parameters = simulation.processors[0].server.weights.size
    failed = () if simulation.failures is None else simulation.failures.by_client.values()
    for failure in failed:
        places.move_client(failure.client, None)
    scores = ScoreHistory(higher_is_better=evaluator.start.higher_is_better)
    for _, result in evaluator.history:
        scores.add(result.mean)
    reached = {target_name(target): evaluator.reached(target) for target in scenario.evaluation.targets or ()}
    return Totals(
        finished=finished,
        time=simulation.clock.now,
        parameters=parameters,
        final=evaluator.history[-1][1] if evaluator.history else None,
        reached={target: hit for target, hit in reached.items() if hit is not None},
        updates_per_client=simulation.updates_per_client,
        synchronisations=simulation.synchronisations.count,
        longest_queue=max(processor.longest for processor in simulation.processors),
        bytes=dict(
            zip(
                WAYS,
                (simulation.links.bytes_down, simulation.links.bytes_up, simulation.links.bytes_between),
                strict=True,
            )
        ),
        messages=dict(sorted(simulation.messages.items())),
        servers=[
            server_totals(
                scenario.world.regions[places.server_regions[i]],
                simulation.processors[i].server,
                clients=len(places.clients_of(i)),
                updates=simulation.updates_per_server[i],
                longest_queue=simulation.processors[i].longest,
            )
            for i in places.learners
        ],
        duration=scenario.duration,
        events=simulation.clock.happened,
        measured=evaluator.measured,
        by_clients=evaluator.by_clients,
        reports=simulation.reports,
        scores=scores,
        privacy=None if simulation.failures is None else simulation.failures.task.privacy_spent(simulation.trainings),
        given=initial_model is not None,
        times=round_times(scenario, parameters),
        failed=[FailedClient(failure.client, failure.time, failure.reason) for failure in failed],
    )
