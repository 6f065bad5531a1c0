"""Measured costs of a deployment that scenarios do not contain; the prediction includes them.

Three costs add to training and latency. Between two updates of a client, gRPC, TLS and other processes of the machine
take time. A message from one server to another waits until a checkpoint that contains it is on disk. In algorithms
with rounds, a round starts with a model to each client, one after the other.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from spyker.config.scenario import Scenario
from spyker.config.world import latency_seconds
from spyker.placement import Topology
from spyker.protocol.codec import HEADER_BYTES
from spyker.protocol.facts import Merged, RoundEnded, SyncStarted
from spyker.records import RunRecord
from spyker.tasks.client_delays import delays

BYTES_PER_PARAMETER = 4


@dataclass(frozen=True)
class Costs:
    """In milliseconds."""

    update: float
    """Milliseconds between two updates of a client, beyond the scenario's."""
    saving: float
    """Milliseconds of a message between servers, beyond the latency."""
    sending: float
    """Milliseconds per client whose model is sent at the start of a round."""


def measure(spyker: Sequence[Path], fedavg: Path, scenario: Scenario) -> Costs:
    """Compute the costs from the records of a run of Spyker, one per server, and of a run of FedAvg."""
    update, saving = of_spyker(spyker, scenario)
    return Costs(update, saving, of_fedavg(fedavg, scenario, update))


def of_fedavg(record: Path, scenario: Scenario, update: float) -> float:
    """Return the duration of a round beyond the slowest client, in milliseconds per client."""
    latency, training, server = latency_seconds(scenario.world), delays(scenario), scenario.world.server_region
    counts = scenario.world.clients
    assert counts is not None
    regions = [region for region, count in enumerate(counts) for _ in range(count)]
    slowest = max(d + latency[server][r] + latency[r][server] for d, r in zip(training, regions, strict=True))
    ends = [stated.t for stated in RunRecord(record).facts(RoundEnded)]
    rounds = [b - a for a, b in itertools.pairwise(ends)]
    return max(0.0, 1000 * (statistics.median(rounds) - slowest) - update) / len(training)


def of_spyker(records: Sequence[Path], scenario: Scenario) -> tuple[float, float]:
    """Return ``update`` and ``saving``."""
    latency, training = latency_seconds(scenario.world), delays(scenario)
    runs = [RunRecord(folder) for folder in records]
    began = [run.start.began or 0.0 for run in runs]
    size = 4 * (runs[0].summary or {})["parameters"] + HEADER_BYTES
    transfer = 8 * size / (1e6 * scenario.world.bandwidth_mbit)
    updates: list[float] = []
    said: dict[tuple[int, int], float] = {}
    for i, run in enumerate(runs):
        known = 2 * latency[i][i] + 2 * transfer + scenario.world.mix_ms / 1000
        last: dict[int, float] = {}
        for t, fact, _ in run.updates():
            if fact.client in last:
                updates.append(t - last[fact.client] - training[fact.client] - known)
            last[fact.client] = t
        for t, sync, _ in run.facts(SyncStarted):
            said[sync.server, sync.bid] = began[i] + t
    words = [
        began[i] + t - said[merge.peer, merge.bid] - latency[merge.peer][i] - transfer
        for i, run in enumerate(runs)
        for t, merge, _ in run.facts(Merged)
        if (merge.peer, merge.bid) in said
    ]
    return max(0.0, 1000 * statistics.median(updates)), max(0.0, 1000 * statistics.median(words))


def with_costs(scenario: Scenario, costs: Costs) -> Scenario:
    """Return the scenario with these costs, as far as it has settings for them."""
    slower = tuple(1000 * seconds + costs.update for seconds in delays(scenario))
    scenario = replace(scenario, training=replace(scenario.training, delay_ms=slower))
    places = scenario.placement()
    busiest = max(len(places.clients_of(i)) for i in places.learners)
    average = scenario.world.average_ms + costs.sending * busiest
    scenario = replace(scenario, world=replace(scenario.world, average_ms=average))
    if scenario.chosen.topology is Topology.SINGLE:
        return scenario  # no server waits for a checkpoint
    assert scenario.world.latency_ms is not None
    farther = tuple(
        tuple(ms if i == j else ms + costs.saving for j, ms in enumerate(row))
        for i, row in enumerate(scenario.world.latency_ms)
    )
    return replace(scenario, world=replace(scenario.world, latency_ms=farther))
