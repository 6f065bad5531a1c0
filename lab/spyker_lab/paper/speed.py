"""A model of the speed of rules that mix in every update, with rates observed in runs.

Let a training move a model by Δ. A server that mixes in updates with weight w, ``W += w(W_k - W)``, gains w·Δ by each
and loses w times its own progress since it sent the model to that client: during one round trip of the client it moves
by its own speed v times that trip, and the update undoes w times as much. With r updates per second and N clients,
whose round trips then last N/r, that leaves ``v = r·w·Δ/(1 + w·N)``, which is at most Δ per round trip, r/N times a
second, whatever the weights are. Where clients differ, r·w is the sum of all weights of a second and w·N the sum over
clients of each one's mean weight.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from spyker.plots.samples import SeedSample, sample
from spyker.protocol.facts import SyncStarted, TokenArrived
from spyker.records import RunRecord


@dataclass(frozen=True, slots=True)
class ObservedPace:
    """Observed rates of a run of Spyker or FedAsync, as means over servers."""

    trips: float
    """Updates of a client per second."""
    weight: float
    """The mean weight of an update."""
    speed: float
    """v, in trainings at the full learning rate per second."""


@dataclass(frozen=True, slots=True)
class Gain:
    """The time that Spyker saves compared with FedAsync, in per cent: predicted, at most, and measured."""

    spyker: Sequence[ObservedPace]
    fedasync: Sequence[ObservedPace]
    predicted: SeedSample
    limit: SeedSample
    """If Spyker's servers moved by a whole Δ per round trip, as with the largest weights."""
    measured: SeedSample
    paper: float | None = None


def observed_pace(run: RunRecord) -> ObservedPace | None:
    """Return the observed rates of a run, or ``None`` if it is too short."""
    section = run.scenario[run.scenario["algorithm"]]
    scale, full = float(section["client-rate"]), float(run.scenario["training"]["rate"])
    weights: dict[int, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    steps: dict[int, float] = defaultdict(float)
    moments = []
    for t, update, _ in run.updates():
        moments.append(t)
        weights[update.server][update.client].append(scale * update.weight)
        steps[update.server] += scale * update.weight * update.rate / full
    seconds = moments[-1] - moments[0] if moments else 0.0
    if not seconds:
        return None
    servers = list(weights.values())
    every = [w for server in servers for mine in server.values() for w in mine]
    pulled = {i: sum(map(statistics.fmean, server.values())) for i, server in weights.items()}  # w·N
    return ObservedPace(
        len(every) / seconds / sum(map(len, servers)),
        statistics.fmean(every),
        statistics.fmean(steps[i] / seconds / (1 + pulled[i]) for i in weights),
    )


def gain(
    spyker: Sequence[RunRecord | None], fedasync: Sequence[RunRecord | None], measured: SeedSample, paper: float | None
) -> Gain:
    """Compare runs that differ only in their algorithm, seed by seed."""
    pairs = [
        (mine and observed_pace(mine), theirs and observed_pace(theirs))
        for mine, theirs in zip(spyker, fedasync, strict=True)
    ]
    known = [(mine, theirs) for mine, theirs in pairs if mine and theirs]

    def less_time(speed: Callable[[ObservedPace], float]) -> SeedSample:
        return sample(100 * (1 - theirs.speed / speed(mine)) if mine and theirs else None for mine, theirs in pairs)

    return Gain(
        [mine for mine, _ in known],
        [theirs for _, theirs in known],
        less_time(lambda mine: mine.speed),
        less_time(lambda mine: mine.trips),
        measured,
        paper,
    )


def tokens(run: RunRecord) -> tuple[int, int]:
    """Count the arrivals of the token, and those that started an exchange at the same time."""
    arrived = [(t, fact.server, fact.bid) for t, fact, _ in run.facts(TokenArrived)]
    started = {(t, fact.server, fact.bid) for t, fact, _ in run.facts(SyncStarted)}
    return len(arrived), sum(key in started for key in arrived)
