"""The summary of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from spyker.protocol.facts import CloudRoundEnded, EarlySyncStarted, Fact, SyncStarted
from spyker.protocol.server import Server, epoch_of, first_bid
from spyker.records.run_facts import Evaluated, EvaluatedByClients, MetricEvaluated, RunStarted
from spyker.records.run_warnings import (
    RoundTimes,
    RunWarning,
    ScoreHistory,
    as_table,
    diverged_servers,
    no_updates,
    score_warnings,
    slow_links,
)

WEIGHTS_SHOWN = 64  # maximum number of parameters of models whose weights are in the summary
WAYS = ("server-to-client", "client-to-server", "server-to-server")

Hit = tuple[float, int]
"""When a target was reached: the time and the number of updates."""


@dataclass(frozen=True, slots=True)
class FailedClient:
    """A client that was excluded because its training failed."""

    client: int
    time: float
    reason: str


@dataclass(frozen=True, slots=True)
class Totals:
    """Totals counted by the driver."""

    finished: bool
    time: float
    parameters: int
    final: Evaluated | None
    """The last evaluation."""
    reached: Mapping[str, Hit]
    """Reached targets, by :func:`target_name`."""
    updates_per_client: Sequence[int]
    synchronisations: int
    longest_queue: int
    bytes: Mapping[str, int]
    """By direction (:data:`WAYS`)."""
    messages: Mapping[str, int]
    """By kind."""
    servers: Sequence[Mapping[str, Any]]
    """Servers with clients; see :func:`server_totals`."""
    duration: float | None = None
    """Planned duration, if any."""
    events: int | None = None
    """Events of an emulation."""
    measured: Sequence[MetricEvaluated] = ()
    """Further metrics of the last evaluation."""
    by_clients: Sequence[EvaluatedByClients] = ()
    """The last aggregates of the clients' evaluations."""
    reports: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    """Last reported metrics, by client."""
    failed: Sequence[FailedClient] = ()
    """Excluded clients, in order."""
    scores: ScoreHistory | None = None
    """All scores."""
    times: RoundTimes | None = None
    """Duration of a client's round, if known."""
    privacy: Mapping[str, Any] | None = None
    """The highest ε of a client, with its unit and δ, under differential privacy."""
    given: bool = False
    """Whether the run has an initial model from a file."""


def summarise(start: RunStarted, totals: Totals) -> dict[str, Any]:
    """Return the summary. That of an emulation depends only on the scenario, not on machine or clock."""
    final, targets = totals.final, [target_name(target) for target in start.targets]
    hits = {target: totals.reached.get(target) for target in targets}
    return {
        "spyker": start.spyker,
        "algorithm": start.algorithm,
        "title": start.title,
        "task": start.task,
        "seed": start.seed,
        **known(duration=totals.duration, server=start.server, began=start.began),
        "finished": totals.finished,
        "time": round(totals.time, 9),
        **known(events=totals.events, metrics=other_metrics(totals.measured), reported=reported(totals.reports)),
        **known(evaluation_by_clients=by_clients(totals.by_clients)),
        "parameters": totals.parameters,
        "metric": {"name": start.metric, "higher_is_better": start.higher_is_better},
        "final": {key: final and getattr(final, key) for key in ("mean", "worst", "best", "averaged")},
        "time_to_target": {target: hit and hit[0] for target, hit in hits.items()},
        "updates_to_target": {target: hit and hit[1] for target, hit in hits.items()},
        "updates": sum(server["updates"] for server in totals.servers),
        "updates_per_server": [server["updates"] for server in totals.servers],
        "updates_per_client": list(totals.updates_per_client),
        "synchronisations": totals.synchronisations,
        "longest_queue": totals.longest_queue,
        "bytes": {"total": sum(totals.bytes.values()), **{way: totals.bytes[way] for way in WAYS}},
        "messages": dict(totals.messages),
        "servers": list(totals.servers),
        **known(privacy=totals.privacy),
        **known(failed_clients=failed_clients(totals.failed), warnings=as_table(run_warnings(start, totals))),
    }


def server_totals(region: str, server: Server, *, clients: int, updates: int, longest_queue: int) -> dict[str, Any]:
    """Return the totals of a server."""
    return {
        "region": region,
        "clients": clients,
        "updates": updates,
        "age": server.age,
        "version": server.version,
        "longest_queue": longest_queue,
        **({"restored": server.restored} if server.restored else {}),
        **({"weights": server.weights.peek().tolist()} if server.weights.size <= WEIGHTS_SHOWN else {}),
    }


def other_metrics(measured: Sequence[MetricEvaluated]) -> dict[str, Any] | None:
    """Return the further metrics by name."""
    keys = ("higher_is_better", "mean", "worst", "best", "averaged")
    return {each.name: {key: getattr(each, key) for key in keys} for each in measured} or None


def by_clients(found: Sequence[EvaluatedByClients]) -> dict[str, Any] | None:
    """Return the clients' evaluations by metric."""
    return {
        each.name: {
            "higher_is_better": each.higher_is_better,
            "clients": each.clients,
            "weighted_mean": each.weighted_mean,
            "mean": each.mean if each.worst_decile_clients else None,
            "median": each.median if each.worst_decile_clients else None,
            "worst_decile": each.worst_decile if each.worst_decile_clients else None,
            "worst_decile_clients": each.worst_decile_clients,
            "regions": {region.region: {"clients": region.clients, "value": region.value} for region in each.regions},
        }
        for each in found
    } or None


def run_warnings(start: RunStarted, totals: Totals) -> list[RunWarning]:
    """Return warnings about learning; a run that was stopped early gets fewer."""
    found, updates, scores = [], sum(server["updates"] for server in totals.servers), totals.scores
    cloud = any(place.id == start.server and place.clients is None for place in start.servers)
    if not updates and totals.finished and not cloud:
        found.append(no_updates(totals.time, totals.times))
    if totals.times is not None:
        found += slow_links(totals.times)
    found += diverged_servers(sum(server.get("restored", 0) for server in totals.servers))
    if scores is not None:
        met = totals.given or not totals.finished or any(start.good(scores.last, target) for target in start.targets)
        found += score_warnings(scores, start.metric, updates, start.clients, met=met)
    return found


def failed_clients(failed: Sequence[FailedClient]) -> list[dict[str, Any]] | None:
    """Return the excluded clients with time and reason."""
    return [{"client": each.client, "time": round(each.time, 9), "reason": each.reason} for each in failed] or None


def reported(reports: Mapping[int, Mapping[str, float]]) -> dict[str, Any] | None:
    """Return mean, minimum, maximum and count of the clients' last reports, by name."""
    names = dict.fromkeys(name for _, metrics in sorted(reports.items()) for name in metrics)
    found = {name: [metrics[name] for _, metrics in sorted(reports.items()) if name in metrics] for name in names}
    return {
        name: {"mean": sum(values) / len(values), "least": min(values), "most": max(values), "clients": len(values)}
        for name, values in found.items()
    } or None


def known(**values: object) -> dict[str, object]:
    """Return the values that are not ``None``."""
    return {key: value for key, value in values.items() if value is not None}


class SyncCount:
    """Counts synchronisations. Servers may start the same one independently, and each epoch numbers them anew."""

    def __init__(self, count: int = 0, latest: int = 0) -> None:
        """Continue with the count so far and the number of the latest synchronisation."""
        self.count, self.latest = count, latest

    def fact(self, fact: Fact) -> None:
        """Process a fact."""
        if isinstance(fact, SyncStarted | EarlySyncStarted):
            first = max(self.latest + 1, first_bid(epoch_of(fact.bid)))
            self.count += max(0, fact.bid - first + 1)
            self.latest = max(self.latest, fact.bid)
        elif isinstance(fact, CloudRoundEnded):
            self.count += 1


def target_name(target: float) -> str:
    """Return a target as a string."""
    return f"{target:g}"
