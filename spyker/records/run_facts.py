"""The facts that whoever runs the nodes states: what run this is, how good its models are, that a server went on."""

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
EMULATED, DEPLOYED = "emulated", "deployed"


@dataclass(frozen=True, slots=True)
class ServerPlace:
    """A server, where it is, and how many clients it begins with; ``None`` if it never has any, like a cloud."""

    id: int
    region: str
    clients: int | None


@dataclass(frozen=True, slots=True)
class RunStarted(Fact):
    """What run this is: the first fact of every record, so that one that was killed, or still runs, can be shown."""

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
    """Whose record this is, if it is that of one deployed server."""
    began: float | None
    """The unix time of time zero in the deployed world. The emulated one has none."""

    def good(self, score: float, target: float) -> bool:
        """Whether a score is at least as good as ``target``. One that is not a number never is."""
        return score >= target if self.higher_is_better else score <= target


def run_started(
    scenario: Scenario, metric: str, higher_is_better: bool, server: int | None = None, began: float | None = None
) -> RunStarted:
    """The first fact of a run of a resolved scenario; deployed, if it has a time at which it ``began``."""
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
    """The servers that the algorithm of a resolved scenario wants, in the order of their ids."""
    placed, names = scenario.placement(), scenario.world.regions
    counts = Counter(placed.homes)
    return [
        ServerPlace(i, names[placed.server_regions[i]], counts[i] if i in placed.learners else None)
        for i in placed.servers
    ]


@dataclass(frozen=True, slots=True)
class InitialModelLoaded(Fact):
    """The run began from the model in a file, and not from the task's own W⁰."""

    kind: ClassVar[str] = "initial-model"
    model: str
    """Where the file was."""
    sha256: str


@dataclass(frozen=True, slots=True)
class Evaluated(Fact):
    """The servers' models were judged. ``averaged`` is the score of the mean of their weights."""

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
    """An evaluation from the scores of the servers. A score that is not a number is worse than any that is one.

    Where the mean of the weights was never judged, the mean of the scores stands for it.
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
    """What else an evaluation measured, besides its task's metric: follows an :class:`Evaluated` of the same time."""

    kind: ClassVar[str] = "metric"
    name: str
    higher_is_better: bool
    mean: float
    worst: float
    best: float
    averaged: float
    servers: list[float]


def measured(name: str, scores: Sequence[float], averaged: float | None, *, higher_is_better: bool) -> MetricEvaluated:
    """The same from the scores of the servers."""
    same = evaluated(0, 0, scores, averaged, higher_is_better=higher_is_better)
    return MetricEvaluated(name, higher_is_better, same.mean, same.worst, same.best, same.averaged, same.servers)


@dataclass(frozen=True, slots=True)
class ClientFailed(Fact):
    """A client's training failed in an emulation, and the run goes on without that client."""

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
class FactsDropped(Fact):
    """Facts that are missing here: older than a record has room for, or of a time when the disk was full."""

    kind: ClassVar[str] = "facts-dropped"
    server: int
    facts: int
    bytes: int
    version: int | None
    """The lowest that the server went back to in what is missing; later updates from before are void."""

    def and_more(self, other: FactsDropped) -> FactsDropped:
        """Both together."""
        versions = [version for version in (self.version, other.version) if version is not None]
        facts, size = self.facts + other.facts, self.bytes + other.bytes
        return FactsDropped(self.server, facts, size, min(versions, default=None))


@dataclass(frozen=True, slots=True)
class UnknownFact(Fact):
    """A fact that was read and whose kind nobody has declared here, or with other fields than these."""

    kind: str  # type: ignore[misc]  # each has its own
    fields: dict[str, Any]
