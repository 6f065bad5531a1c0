"""Evaluation at fixed virtual times, concurrent with the simulation.

Models are snapshots, so their scores are computed while the simulation continues. Facts after an evaluation are
buffered until its scores are known, which keeps the record ordered by time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from spyker.config.scenario import CLIENTS, Evaluation
from spyker.engines.engine import Engine, EvaluateJob
from spyker.records import Evaluated, EvaluatedByClients, Fact, MetricEvaluated, RunStarted, evaluated, measured
from spyker.records.client_scores import ClientScores
from spyker.sim.clock import Clock
from spyker.sim.nonfinite_model import divergence_error
from spyker.sim.plateau import Plateau
from spyker.sim.world import Simulation, Sink
from spyker.tasks.task import Task
from spyker.vectors import Vector, average, is_finite

ROUNDING = 1e-9  # seconds


@dataclass(slots=True)
class PendingEvaluation:
    """An evaluation whose scores are not computed, or not written yet."""

    t: float
    updates: int
    size: int
    jobs: list[EvaluateJob] = field(default_factory=list)
    result: Evaluated | None = None
    measured: list[MetricEvaluated] = field(default_factory=list)
    by_clients: list[EvaluatedByClients] = field(default_factory=list)


class Evaluator:
    """Evaluates the servers' models. Facts pass through it on their way to ``sink``."""

    def __init__(
        self,
        clock: Clock,
        engine: Engine,
        start: RunStarted,
        plan: Evaluation,
        sink: Sink,
        task: Task | None = None,
        client_scores: ClientScores | None = None,
    ) -> None:
        """Create an evaluator; ``client_scores`` collects the clients' evaluations, if clients evaluate."""
        self.clock, self.engine, self.start, self.plan, self.sink = clock, engine, start, plan, sink
        self.task, self.client_scores = task, client_scores
        self.central = task is None or task.evaluated_by != CLIENTS
        self.by_clients: list[EvaluatedByClients] = []  # at the last evaluation
        self.measured: list[MetricEvaluated] = []  # further metrics of the last evaluation
        self.history: list[tuple[float, Evaluated]] = []
        self.turn = 0
        self._plateau, self._seen = Plateau(higher_is_better=start.higher_is_better), 0
        self._pending: PendingEvaluation | None = None
        self._buffer: list[tuple[float, Fact, int | None]] = []

    def fact(self, t: float, fact: Fact, queue: int | None) -> None:
        """Write a fact, or buffer it while an evaluation is pending."""
        if self.client_scores is not None:
            self.client_scores.fact(t, fact)
        if self._pending is not None:
            if any(job.result is None for job in self._pending.jobs):
                self._buffer.append((t, fact, queue))
                return
            self.settle()
        self.sink(t, fact, queue)

    def evaluate(self, simulation: Simulation, servers: Sequence[int]) -> None:
        """Start an evaluation of these servers' models, and schedule the next one."""
        self.settle()
        models = [simulation.processors[i].server.weights.snapshot() for i in servers]
        for i, model in zip(servers, models, strict=True):
            if not is_finite(model):
                raise divergence_error(i, self.clock.now, simulation.broken, self.task)
        self._pending = PendingEvaluation(self.clock.now, simulation.updates, simulation.links.total_bytes)
        if self.central:
            self._submit(models, simulation)
        if self.client_scores is not None:
            self._ask_clients(self.client_scores, servers)
        self.turn += 1
        # The decision to stop uses the previous evaluation, whose scores are known: it must not depend on real time.
        if self.plan.stop_at is not None and self.stayed(self.plan.stop_at, self.plan.stop_after):
            self.clock.finish()
            return
        if self.plan.patience is not None and self.stalled() >= self.plan.patience - ROUNDING:
            self.clock.finish()
            return
        following = min(self.turn * self.plan.interval, self.clock.end)
        if following > self.clock.now:
            self.clock.at(following, self.evaluate, simulation, servers)

    def _submit(self, models: Sequence[Vector], simulation: Simulation) -> None:
        """Submit evaluations of the servers' models and of their average."""
        assert self._pending is not None
        states = None
        if self.task is not None and self.task.evaluates_states:
            states = {k: state for k, state in simulation.states.items() if state is not None}
        jobs = [EvaluateJob(model, states) for model in models]
        if len(models) > 1:
            jobs.append(EvaluateJob(average(models), states))
        for job in jobs:
            self.engine.submit(job, self.clock.now)
        self._pending.jobs = jobs

    def _ask_clients(self, client_scores: ClientScores, servers: Sequence[int]) -> None:
        """Aggregate the clients' evaluations; without central test data they are the evaluation."""
        pending = self._pending
        assert pending is not None
        pending.by_clients = client_scores.aggregate(pending.t)
        if not self.central:
            clients = {place.id: place.clients or 0 for place in self.start.servers if place.id in servers}
            found = client_scores.evaluation(pending.t, pending.updates, pending.size, clients)
            pending.result, pending.measured = (None, []) if found is None else found

    def settle(self) -> None:
        """Wait for the scores of the pending evaluation, and write the buffered facts."""
        if self._pending is None:
            return
        pending, self._pending = self._pending, None
        if pending.jobs:
            scores = [self.engine.score(job) for job in pending.jobs]
            servers, higher = scores[:-1] or scores, self.start.higher_is_better
            pending.result = evaluated(pending.updates, pending.size, servers, scores[-1], higher_is_better=higher)
            pending.measured = self._others(pending.jobs)
        if pending.result is not None:
            self.history.append((pending.t, pending.result))
            self.sink(pending.t, pending.result, None)
            self.measured = pending.measured
        self.by_clients = pending.by_clients
        for fact in (*pending.measured, *pending.by_clients):
            self.sink(pending.t, fact, None)
        for buffered in self._buffer:
            self.sink(*buffered)
        self._buffer.clear()

    def _others(self, jobs: Sequence[EvaluateJob]) -> list[MetricEvaluated]:
        """Return the further metrics."""
        found = []
        for metric in self.task.also if self.task is not None else ():
            scores = [(job.also or {})[metric.name] for job in jobs]
            better = metric.higher_is_better
            found.append(measured(metric.name, scores[:-1] or scores, scores[-1], higher_is_better=better))
        return found

    def stayed(self, target: float, seconds: float) -> bool:
        """Return whether the servers' mean has been at least ``target`` for ``seconds`` up to the last evaluation."""
        since = None
        for t, result in reversed(self.history):
            if not self.start.good(result.mean, target):
                break
            since = t
        return since is not None and self.history[-1][0] - since >= seconds - ROUNDING

    def stalled(self) -> float:
        """Return the seconds without an improvement of the servers' mean, up to the last evaluation."""
        for t, result in self.history[self._seen :]:
            self._plateau.tell(t, result.mean)
        self._seen = len(self.history)
        return self.history[-1][0] - self._plateau.since if self.history else 0.0

    def reached(self, target: float) -> tuple[float, int] | None:
        """Return time and updates of the first evaluation at which the servers' mean reached ``target``."""
        for t, result in self.history:
            if self.start.good(result.mean, target):
                return t, result.updates
        return None
