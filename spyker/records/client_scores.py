"""Aggregates of the clients' evaluations, for emulations, servers and merged records.

Each client counts with its latest evaluation. Where updates are masked, only weighted means over the clients of a sum
are known, and each server counts with its latest one. An evaluation expires after :data:`LIFETIME` evaluation
intervals, or after twice the time between the client's last two evaluations if that is longer: clients that left drop
out, and slow clients stay in. A client that failed or was put into quarantine drops out at once.

A client states the number of its examples itself. Its weight is therefore limited to :data:`MOST_WEIGHT` times the
median number of examples.
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, NamedTuple

from spyker.protocol.facts import ClientEvaluated, ClientQuarantined, Fact, SumEvaluated
from spyker.records.files import section
from spyker.records.run_facts import (
    MOST_CLIENTS,
    ClientFailed,
    Evaluated,
    EvaluatedByClients,
    MetricEvaluated,
    RegionScore,
    RunStarted,
    evaluated,
    measured,
)

LIFETIME = 10.0  # evaluation intervals for which an evaluation counts
SLOW = 2.0  # times between its last two evaluations for which the evaluation of a slow client counts
MOST_WEIGHT = 10  # times the median number of examples
TENTH = 10


class ClientScore(NamedTuple):
    """The latest evaluation of a client, or of the clients of a server together."""

    t: float
    gap: float
    """Seconds since the evaluation before; 0 if this is the first."""
    server: int
    examples: int
    scores: Mapping[str, float]
    clients: int = 1


@dataclass(frozen=True, slots=True)
class Weighted:
    """A value of a client or of several, and its weight."""

    value: float
    weight: int
    score: ClientScore
    client: int


class ClientScores:
    """The latest evaluations of the clients of a server or of a federation."""

    def __init__(self, start: RunStarted, clients: Sequence[int], also: Mapping[str, bool] | None = None) -> None:
        """Create an empty table.

        Args:
            start: the first fact of the run.
            clients: number of clients in each region of the scenario; numbers of clients follow this order.
            also: further metrics, and whether higher is better.

        """
        self.interval, self.regions = start.interval, start.regions
        self.higher_is_better = {start.metric: start.higher_is_better, **(also or {})}
        """The metrics to aggregate, in order, and their directions."""
        self._homes = {place.id: place.region for place in start.servers}
        self._ends = list(accumulate(clients)) if len(clients) == len(start.regions) else []
        self._latest: dict[int, ClientScore] = {}  # by client; of a server's clients together under -1 - server

    def fact(self, t: float, fact: Fact) -> None:
        """Process a fact of the run."""
        if isinstance(fact, ClientEvaluated | SumEvaluated):
            key, clients = (fact.client, 1) if isinstance(fact, ClientEvaluated) else (-1 - fact.server, fact.clients)
            before = self._latest.get(key)
            gap = 0.0 if before is None else t - before.t
            self._latest[key] = ClientScore(t, gap, fact.server, fact.examples, fact.scores, clients)
        elif isinstance(fact, ClientFailed | ClientQuarantined):
            self._latest.pop(fact.client, None)

    def aggregate(self, t: float) -> list[EvaluatedByClients]:
        """Return the aggregates of all metrics that some client has evaluated, at time ``t``."""
        self._expire(t)
        found = []
        for name, higher in self.higher_is_better.items():
            values = self._values(name)
            if values:
                found.append(self._aggregate(name, higher, values))
        return found

    def evaluation(
        self, t: float, updates: int, size: int, servers: Mapping[int, int]
    ) -> tuple[Evaluated, list[MetricEvaluated]] | None:
        """Return an evaluation in which the score of a server is the weighted mean of its clients.

        A server has no score (NaN) until half of its clients have evaluated, or, after :data:`LIFETIME` intervals, at
        least one. The mean is that of the clients of servers with a score, weighted like theirs, so that algorithms
        with one server and with several are compared on the same number.

        Args:
            t: time of the evaluation.
            updates: number of updates so far.
            size: bytes so far.
            servers: the servers with clients, and how many clients each of them has.

        Returns:
            The evaluation and its further metrics; ``None`` if no server has a score.

        """
        self._expire(t)
        main, *also = self.higher_is_better
        by_server = self._by_server(t, main, servers)
        if not any(by_server):
            return None
        known, scores, mean = summarise(by_server)
        result = evaluated(updates, size, known, None, higher_is_better=self.higher_is_better[main])
        others = []
        for name in also:
            by_server = self._by_server(t, name, servers)
            if any(by_server):
                known, each, other_mean = summarise(by_server)
                other = measured(name, known, None, higher_is_better=self.higher_is_better[name])
                others.append(replace(other, servers=each, mean=other_mean, averaged=other_mean))
        return replace(result, servers=scores, mean=mean, averaged=mean), others

    def state(self) -> dict[str, Any]:
        """Return the state as JSON values."""
        return {"metrics": dict(self.higher_is_better), "clients": [[k, *each] for k, each in self._latest.items()]}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore the state."""
        self.higher_is_better |= state["metrics"]
        self._latest = {client: ClientScore(*each) for client, *each in state["clients"]}

    def _expire(self, t: float) -> None:
        """Forget expired evaluations."""
        for client, (at, gap, *_) in list(self._latest.items()):
            if t - at > max(LIFETIME * self.interval, SLOW * gap):
                del self._latest[client]

    def _values(self, name: str) -> list[Weighted]:
        """Return the clients' values of a metric."""
        there = {k: each for k, each in self._latest.items() if name in each.scores}
        if not there:
            return []
        most = MOST_WEIGHT * statistics.median_low(each.examples / each.clients for each in there.values())
        return [
            Weighted(each.scores[name], min(each.examples, math.ceil(most * each.clients)), each, k)
            for k, each in sorted(there.items())
        ]

    def _by_server(self, t: float, name: str, servers: Mapping[int, int]) -> list[list[Weighted]]:
        """Return the clients' values of a metric by server; none for servers without a score."""
        by_server: dict[int, list[Weighted]] = {server: [] for server in servers}
        for each in self._values(name):
            if each.score.server in by_server:
                by_server[each.score.server].append(each)
        late = t >= LIFETIME * self.interval
        return [
            found if late or 2 * count_clients(found) >= servers[server] else [] for server, found in by_server.items()
        ]

    def _aggregate(self, name: str, higher: bool, values: Sequence[Weighted]) -> EvaluatedByClients:
        numbers = sorted((each.value for each in values), reverse=not higher)  # the worst first
        worst = numbers[: max(1, len(numbers) // TENTH)]
        together = min(each.client for each in values) < 0
        mean = weighted_mean(values)
        by_region: dict[str, list[Weighted]] = {}
        for each in values:
            by_region.setdefault(self._region(each.client, each.score.server), []).append(each)
        return EvaluatedByClients(
            name,
            higher,
            count_clients(values),
            sum(each.weight for each in values),
            mean,
            mean if together else math.fsum(numbers) / len(numbers),
            mean if together else statistics.median(numbers),
            mean if together else math.fsum(worst) / len(worst),
            0 if together else len(worst),
            [
                RegionScore(region, count_clients(found), weighted_mean(found))
                for region in self._ordered(by_region)
                for found in [by_region[region]]
            ],
        )

    def _ordered(self, regions: Iterable[str]) -> list[str]:
        """Return regions in the order of the scenario."""
        return sorted(regions, key=lambda name: (self.regions.index(name) if name in self.regions else math.inf, name))

    def _region(self, client: int, server: int) -> str:
        """Return the region of a client: that of the scenario or, for added clients, that of its server."""
        if self._ends and 0 <= client < self._ends[-1]:
            return self.regions[bisect_right(self._ends, client)]
        return self._homes.get(server, "")


def summarise(by_server: Sequence[Sequence[Weighted]]) -> tuple[list[float], list[float], float]:
    """Return the scores of servers that have one, those of all servers (NaN without one), and the mean of clients."""
    scores = [weighted_mean(found) if found else math.nan for found in by_server]
    known = [score for score in scores if not math.isnan(score)]
    return known, scores, weighted_mean([each for found in by_server for each in found])


def weighted_mean(values: Sequence[Weighted]) -> float:
    """Return the mean weighted by the numbers of examples."""
    return math.fsum(each.weight * each.value for each in values) / sum(each.weight for each in values)


def count_clients(values: Sequence[Weighted]) -> int:
    """Return the number of clients behind some values."""
    return sum(each.score.clients for each in values)


def clients_per_region(scenario: Mapping[str, Any]) -> list[int]:
    """Return the numbers of clients in the regions of a recorded scenario; empty if it has none."""
    found = section(scenario, "world").get("clients")
    if isinstance(found, list) and all(type(each) is int and 0 <= each <= MOST_CLIENTS for each in found):
        return list(found)
    return []


def combined_by_clients(parts: Sequence[EvaluatedByClients]) -> EvaluatedByClients:
    """Combine the aggregates of several servers.

    ``worst_decile`` and ``median`` are the means of those of the servers, because the clients' values are unknown here.
    A merged record has the exact values.
    """
    first, clients, weight = parts[0], sum(p.clients for p in parts), sum(p.examples for p in parts)
    known = all(p.worst_decile_clients for p in parts)
    worst = sum(p.worst_decile_clients for p in parts) if known else 0
    mean = math.fsum(p.examples * p.weighted_mean for p in parts) / weight
    return EvaluatedByClients(
        first.name,
        first.higher_is_better,
        clients,
        weight,
        mean,
        math.fsum(p.clients * p.mean for p in parts) / clients if known else mean,
        math.fsum(p.clients * p.median for p in parts) / clients if known else mean,
        math.fsum(p.worst_decile_clients * p.worst_decile for p in parts) / worst if known else mean,
        worst,
        _combined_regions([(p.examples / p.clients, each) for p in parts for each in p.regions]),
    )


def _combined_regions(parts: Sequence[tuple[float, RegionScore]]) -> list[RegionScore]:
    """Combine regions that several servers have clients in. ``parts`` have the mean weight of a server's clients."""
    by_region: dict[str, list[tuple[float, RegionScore]]] = {}
    for mean_weight, each in parts:
        by_region.setdefault(each.region, []).append((mean_weight * each.clients, each))
    return [
        RegionScore(
            region,
            sum(each.clients for _, each in found),
            math.fsum(weight * each.value for weight, each in found) / math.fsum(weight for weight, _ in found),
        )
        for region, found in by_region.items()
    ]
