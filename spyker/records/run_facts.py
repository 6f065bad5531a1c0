"""Facts that drivers record: the run, evaluations, failures and restarts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from spyker.config.scenario import Scenario
from spyker.protocol.facts import Fact
from spyker.version import __version__

FORMAT = 2
MOST_CLIENTS, MOST_SERVERS, LONGEST_TEXT = 10_000_000, 1 << 16, 1000  # of a record that is read
EMULATED, DEPLOYED = "emulated", "deployed"


@dataclass(frozen=True, slots=True)
class ServerPlace:
    """A server, its region and its initial number of clients; ``None`` for HierFAVG's cloud."""

    id: int
    region: str
    clients: int | None


@dataclass(frozen=True, slots=True)
class RunStarted(Fact):
    """The description of a run: the first fact of every record, so that unfinished runs can be shown."""

    kind: ClassVar[str] = "run"
    format: int
    spyker: str
    algorithm: str
    title: str
    task: str
    metric: str
    higher_is_better: bool
    regions: list[str]
    servers: list[ServerPlace]
    clients: int
    seed: int
    targets: list[float]
    interval: float
    """Seconds between two evaluations."""
    world: str
    """``emulated`` or ``deployed``."""
    server: int | None
    """The server, in the record of a deployed server."""
    began: float | None
    """Unix time of time zero in a deployment; ``None`` in an emulation."""

    def good(self, score: float, target: float) -> bool:
        """Return whether a score reaches ``target``; NaN never does."""
        return score >= target if self.higher_is_better else score <= target

    def problem(self) -> str | None:
        """Return the problem with this description of a run, or ``None``."""
        if not 0 <= self.clients <= MOST_CLIENTS or len(self.servers) > MOST_SERVERS:
            return f"it names {self.clients:,} clients and {len(self.servers):,} servers"
        longest = max(map(len, (self.algorithm, self.title, self.task, self.metric, *self.regions)))
        if longest > LONGEST_TEXT:
            return f"it has a name of {longest:,} characters"
        if not self.servers or len({server.id for server in self.servers}) < len(self.servers):
            return "it names no servers, or one of them twice"
        return None


def run_started(
    scenario: Scenario, metric: str, higher_is_better: bool, server: int | None = None, began: float | None = None
) -> RunStarted:
    """Return the first fact of a run of a resolved scenario; of a deployment if ``began`` is given."""
    return RunStarted(
        FORMAT,
        __version__,
        scenario.algorithm,
        scenario.chosen.title,
        scenario.task.name,
        metric,
        higher_is_better,
        list(scenario.world.regions),
        places(scenario),
        scenario.client_count,
        scenario.seed,
        list(scenario.evaluation.targets or ()),
        scenario.evaluation.interval,
        EMULATED if began is None else DEPLOYED,
        server,
        began,
    )


def places(scenario: Scenario) -> list[ServerPlace]:
    """Return the initial servers of a resolved scenario, in the order of their numbers, without mere helpers."""
    placed, names = scenario.placement(), scenario.world.regions
    counts = Counter(placed.homes)
    return [
        ServerPlace(i, names[placed.server_regions[i]], counts[i] if i in placed.learners else None)
        for i in placed.servers
        if i not in placed.helpers
    ]


@dataclass(frozen=True, slots=True)
class InitialModelLoaded(Fact):
    """The initial model was read from a file."""

    kind: ClassVar[str] = "initial-model"
    model: str
    """Path of the file."""
    sha256: str


@dataclass(frozen=True, slots=True)
class Evaluated(Fact):
    """The servers' models were evaluated. ``averaged`` is the score of their averaged weights."""

    kind: ClassVar[str] = "evaluation"
    updates: int
    bytes: int
    mean: float
    worst: float
    best: float
    averaged: float
    servers: list[float]


def evaluated(
    updates: int, size: int, scores: Sequence[float], averaged: float | None, *, higher_is_better: bool
) -> Evaluated:
    """Return an evaluation from the servers' scores. NaN is the worst score.

    Without a score of the averaged weights, the mean of the scores takes its place.
    """
    mean = sum(scores) / len(scores)
    numbers = [score for score in scores if not math.isnan(score)]
    worst, best = (min(numbers), max(numbers)) if numbers else (math.nan, math.nan)
    if not higher_is_better:
        worst, best = best, worst
    if len(numbers) < len(scores):
        worst = math.nan
    return Evaluated(updates, size, mean, worst, best, mean if averaged is None else averaged, list(scores))


@dataclass(frozen=True, slots=True)
class MetricEvaluated(Fact):
    """A further metric of an evaluation; it follows the :class:`Evaluated` of the same time."""

    kind: ClassVar[str] = "metric"
    name: str
    higher_is_better: bool
    mean: float
    worst: float
    best: float
    averaged: float
    servers: list[float]


def measured(name: str, scores: Sequence[float], averaged: float | None, *, higher_is_better: bool) -> MetricEvaluated:
    """Return a further metric from the servers' scores."""
    same = evaluated(0, 0, scores, averaged, higher_is_better=higher_is_better)
    return MetricEvaluated(name, higher_is_better, same.mean, same.worst, same.best, same.averaged, same.servers)


@dataclass(frozen=True, slots=True)
class RegionScore:
    """The weighted mean of a metric over the clients of a region, and their number."""

    region: str
    clients: int
    value: float


@dataclass(frozen=True, slots=True)
class EvaluatedByClients(Fact):
    """The clients' latest evaluations of the metric ``name``, aggregated.

    The weights are numbers of examples, limited to ten times their median. ``worst_decile`` is the mean over the worst
    tenth of the clients. Of masked scores only weighted means are known: then ``worst_decile_clients`` is 0, and
    ``mean``, ``median`` and ``worst_decile`` repeat ``weighted_mean``.
    """

    kind: ClassVar[str] = "evaluation-by-clients"
    name: str
    higher_is_better: bool
    clients: int
    """Number of clients behind ``weighted_mean``, ``mean`` and ``median``."""
    examples: int
    """Sum of the weights."""
    weighted_mean: float
    mean: float
    median: float
    worst_decile: float
    worst_decile_clients: int
    regions: list[RegionScore]


@dataclass(frozen=True, slots=True)
class ClientFailed(Fact):
    """A client's training failed in an emulation; the run continues without the client."""

    kind: ClassVar[str] = "client-failed"
    server: int
    client: int
    reason: str


@dataclass(frozen=True, slots=True)
class ServerResumed(Fact):
    """A server process resumed from a checkpoint: ``lost_updates`` after ``version`` are lost and their facts void."""

    kind: ClassVar[str] = "server-resumed"
    server: int
    version: int
    lost_updates: int


@dataclass(frozen=True, slots=True)
class ClientReplaced(Fact):
    """A second connection of ``client`` replaced the first: its key may be in use in two places.

    At most one such fact per client and minute is written.
    """

    kind: ClassVar[str] = "client-replaced"
    server: int
    client: int
    another_address: bool


@dataclass(frozen=True, slots=True)
class FactsDropped(Fact):
    """Facts are missing: they were rotated out, or the disk was full."""

    kind: ClassVar[str] = "facts-dropped"
    server: int
    facts: int
    bytes: int
    version: int | None
    """Lowest version that the server resumed from within the missing facts; later earlier updates are void."""

    def and_more(self, other: FactsDropped) -> FactsDropped:
        """Return the sum of two gaps."""
        versions = [version for version in (self.version, other.version) if version is not None]
        facts, size = self.facts + other.facts, self.bytes + other.bytes
        return FactsDropped(self.server, facts, size, min(versions, default=None))


@dataclass(frozen=True, slots=True)
class UnknownFact(Fact):
    """A fact of an undeclared kind, or with other fields than declared."""

    kind: str  # type: ignore[misc]  # each has its own
    fields: dict[str, Any]
