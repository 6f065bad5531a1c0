"""Learning curves from run records, for tables and plots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from spyker.protocol.facts import ClientReported
from spyker.records import Evaluated, EvaluatedByClients, MetricEvaluated, RecordedFact, RecordError, RunRecord
from spyker.records.run_facts import EMULATED


@dataclass(frozen=True, slots=True)
class Curve:
    """The evaluations of one run."""

    metric: str
    higher_is_better: bool
    time: list[float]
    updates: list[int]
    bytes: list[int]
    mean: list[float]
    worst: list[float]
    best: list[float]
    averaged: list[float]
    synchronisations: int
    finished: bool
    virtual: bool = True
    """Whether times are virtual (simulation) rather than real (deployment)."""
    scored: str = "server"
    """The source of the scores: servers (``server``), clients that report metrics (``client``), or the weighted mean of
    clients that evaluate (``clients``)."""
    by_clients: bool = False
    """Whether the score of a server is the weighted mean of its clients' evaluations."""
    central: list[float] | None = None
    """If clients evaluate: the servers' mean on central test data at these times, if there is one."""

    def good(self, score: float, target: float) -> bool:
        """Return whether a score is at least as good as ``target``."""
        return score >= target if self.higher_is_better else score <= target

    def reached(self, target: float, scores: Sequence[float] | None = None) -> tuple[float, int] | None:
        """Return time and updates of the first evaluation that reached ``target``; ``scores`` default to the means."""
        scores = self.mean if scores is None else scores
        for t, updates, score in zip(self.time, self.updates, scores, strict=True):
            if self.good(score, target):
                return t, updates
        return None

    def held(self, target: float, scores: Sequence[float] | None = None) -> tuple[float, int] | None:
        """Return time and updates of the first evaluation after which no score fell below ``target``."""
        scores = self.mean if scores is None else scores
        hit = None
        for t, updates, score in zip(self.time[::-1], self.updates[::-1], scores[::-1], strict=True):
            if not self.good(score, target):
                break
            hit = t, updates
        return hit


def targets(runs: Sequence[RunRecord]) -> list[float]:
    """Return the distinct target scores of some runs."""
    return list(dict.fromkeys(target for run in runs for target in run.start.targets))


def curve(run: RunRecord) -> Curve:
    """Read the evaluations of a run, finished or not.

    Raises:
        RecordError: the run has no evaluation.

    """
    points: list[RecordedFact[Evaluated]] = list(run.facts(Evaluated))
    if not points:
        raise RecordError(f"{run.folder}: no evaluation yet. Let it run longer, or run it again if it has ended")
    scores, summary = [p.fact for p in points], run.summary or {}
    return Curve(
        run.start.metric,
        run.start.higher_is_better,
        [p.t for p in points],
        [s.updates for s in scores],
        [s.bytes for s in scores],
        [s.mean for s in scores],
        [s.worst for s in scores],
        [s.best for s in scores],
        [s.averaged for s in scores],
        summary.get("synchronisations", 0),
        bool(summary.get("finished")),
        run.start.world == EMULATED,
        by_clients=run.evaluated_by == "clients",
    )


def other_curves(run: RunRecord) -> dict[str, Curve]:
    """Return the curves of further metrics by name: of evaluations, by clients, and means of the clients' reports."""
    main, found = curve(run), dict[str, Curve]()
    if not (run.summary or {"metrics": True}).keys() & {"metrics", "reported", "evaluation_by_clients"}:
        return found  # do not read the record again
    row, last = 0, dict[str, dict[int, float]]()
    for _, fact, _ in run.facts(Evaluated, MetricEvaluated, EvaluatedByClients, ClientReported):
        if isinstance(fact, EvaluatedByClients):
            name = on_clients(fact.name)
            if row and (name not in found or found[name].time[-1] < main.time[row - 1]):  # one point per evaluation
                point = CurvePoint(fact.weighted_mean, fact.worst_decile, fact.weighted_mean, fact.mean)
                add(found, name, fact.higher_is_better, main, row - 1, point, "clients")
        elif isinstance(fact, MetricEvaluated):
            point = CurvePoint(fact.mean, fact.worst, fact.best, fact.averaged)
            add(found, fact.name, fact.higher_is_better, main, row - 1, point, "server")
        elif isinstance(fact, ClientReported):
            for name, value in fact.metrics.items():
                if name in last or len(last) < MOST_METRICS:
                    last.setdefault(name, {})[fact.client] = value
        else:
            for name, values in last.items():
                mean, low, high = sum(values.values()) / len(values), min(values.values()), max(values.values())
                higher = "loss" not in name
                worst, best = (low, high) if higher else (high, low)
                add(found, name, higher, main, row, CurvePoint(mean, worst, best, mean), "client")
            row += 1
    if run.evaluated_by == "both":
        for name, central in {main.metric: main, **found}.items():
            if central.scored == "server" and on_clients(name) in found:
                scores, theirs = dict(zip(central.time, central.mean, strict=True)), found[on_clients(name)]
                found[on_clients(name)] = replace(theirs, central=[scores[t] for t in theirs.time])
    return dict(sorted(found.items(), key=lambda item: ORDER.index(item[1].scored)))


MOST_METRICS, LONGEST_NAME = 256, 256  # that are shown; a client cannot report longer names


def on_clients(metric: str) -> str:
    """Return the name of the curve of a metric that clients evaluate."""
    return f"{metric} on clients"


ORDER = ("server", "clients", "client")  # evaluations come first, then reports


class CurvePoint(NamedTuple):
    """The scores of one evaluation."""

    mean: float
    worst: float
    best: float
    averaged: float


def add(found: dict[str, Curve], name: str, higher: bool, main: Curve, row: int, point: CurvePoint, node: str) -> None:
    """Append a point to the curve of this name, at the time of evaluation ``row``."""
    if name not in found:
        if len(found) >= MOST_METRICS or len(name) > LONGEST_NAME:
            return
        ended = main.synchronisations, main.finished, main.virtual
        found[name] = Curve(name, higher, [], [], [], [], [], [], [], *ended, node)
    curve = found[name]
    for key in ("time", "updates", "bytes"):
        getattr(curve, key).append(getattr(main, key)[row])
    for key, score in point._asdict().items():
        getattr(curve, key).append(score)
