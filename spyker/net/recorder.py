"""The run record of a server process, in the format of emulations; times are seconds since the server first started."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from spyker.config.scenario import CLIENTS, SERVERS, Scenario, dump
from spyker.errors import UsageError
from spyker.net.json_log import JsonLog
from spyker.net.rate_limited_log import RateLimitedLog
from spyker.protocol.facts import ClientReported, UpdateApplied
from spyker.protocol.server import Server
from spyker.records import (
    FACTS,
    SCENARIO,
    SUMMARY,
    Evaluated,
    EvaluatedByClients,
    Fact,
    FactsDropped,
    InitialModelLoaded,
    MetricEvaluated,
    RecordError,
    RecordWriter,
    RunStarted,
    ServerPlace,
    ServerResumed,
    evaluated,
    first_fact,
    measured,
    read_back,
    run_started,
)
from spyker.records.client_scores import ClientScores
from spyker.records.run_warnings import NO_UPDATES, RunWarning, ScoreHistory, score_warnings
from spyker.records.summary import WAYS, Hit, SyncCount, Totals, server_totals, summarise, target_name
from spyker.tasks.registry import with_task_defaults
from spyker.tasks.served_model import ModelSpec
from spyker.tasks.task import EvaluationResult, Metric

SAME = ("algorithm", "task", "metric", "regions", "clients", "seed")
"""Properties of a run that must not change between incarnations."""
SILENT_SECONDS = 60.0  # without an update until a warning
FIRST_SECONDS = 600.0  # likewise before the first update, when the duration of a training is unknown
GAP_FACTOR = 3.0  # warn only after this multiple of the longest time between two updates
WARM_UP = 10  # evaluations, and updates per client, before a lack of progress is reported


def prepare_folder(folder: Path, scenario: Scenario, metric: Metric, server: int, *, resume: bool) -> None:
    """Check that a record can be created or continued in a folder.

    Raises:
        UsageError: the folder holds another record or other files, or a record that is not to be resumed.

    """
    facts = folder / FACTS
    try:
        start = first_fact(folder)
        begun, foreign = start is not None and start.server == server, start is not None and start.server != server
    except RecordError:
        begun, foreign = False, True
    if begun and not resume:
        raise UsageError(
            "deploy.record",
            f"{folder} is the record of an earlier run of this server",
            "Add --resume to continue from its last checkpoint, or give another folder",
        )
    if begun:
        assert start is not None
        expected = run_started(scenario, metric.name, metric.higher_is_better, server)
        for key in SAME:
            recorded, given = getattr(start, key), getattr(expected, key)
            if recorded != given:
                raise UsageError(
                    "deploy.record",
                    f"{folder} is the record of another scenario: its {key} is {show(recorded)}, not {show(given)}",
                    "Use the scenario of the record, or give another folder",
                )
    if not begun and not foreign and not (folder / SUMMARY).exists() and not has_line(facts):
        for name in (SCENARIO, FACTS):  # of a failed start; the scenario may have been corrected since
            (folder / name).unlink(missing_ok=True)
    if not begun and folder.exists() and any(folder.iterdir()):
        raise UsageError("deploy.record", f"{folder} is not empty", "Give a folder that is empty or does not exist")


def show(value: object) -> str:
    """Return a value of a record for an error message."""
    return f"{value:,}" if isinstance(value, int) else str(value) if len(str(value)) < 60 else "another list"


def has_line(facts: Path) -> bool:
    """Return whether a file has a complete first line."""
    if not facts.exists():
        return False
    with facts.open("rb") as file:
        return file.readline().endswith(b"\n")


def newest(folder: Path) -> float:
    """Return the time of the newest fact in a server's record. Only evaluations are written with a delay."""
    t = 0.0
    for recorded in read_back(folder):
        t = max(t, recorded.t)
        if not isinstance(recorded.fact, Evaluated):
            break
    return t


class Recorder:
    """Counts and records the facts of one server."""

    def __init__(
        self,
        scenario: Scenario,
        model: ModelSpec,
        server: int,
        folder: Path,
        *,
        resume: bool,
        log: JsonLog,
        limit: int | None = None,
        dropped: Callable[[int], None] = lambda facts: None,
        region: str | None = None,
        evaluated_by: str = SERVERS,
    ) -> None:
        """Open the record of a server.

        Args:
            scenario: the resolved scenario.
            model: specification of the model.
            server: number of the server.
            folder: folder of the record.
            resume: whether to continue an existing record.
            log: the log of the process.
            limit: maximum size of the record in bytes.
            dropped: called with the number of facts that were deleted or could not be written.
            region: region of a server that is not in the scenario.
            evaluated_by: who evaluates: ``servers``, ``clients`` or ``both``.

        """
        scenario = with_task_defaults(scenario, model)
        if evaluated_by != SERVERS:
            scenario = replace(scenario, evaluation=replace(scenario.evaluation, by=evaluated_by))
        self.scenario, self.model, self.server, self.folder = scenario, model, server, folder
        self._log, self._region = log, region
        self._logged_not_finite = False
        prepare_folder(folder, scenario, model.metric, server, resume=resume)
        self._record = RecordWriter(folder, dump(scenario), at_once=True, append=resume, server=server, limit=limit)
        self._dropped, self._limited_log = dropped, RateLimitedLog(log)
        self._unwritten: FactsDropped | None = None  # facts that could not be written
        self._has_first = False  # whether the record's first fact is written
        self._closed = False
        self.start: RunStarted | None = None  # unset until the run starts
        self._elapsed = 0.0  # seconds of earlier incarnations
        self._began = 0.0  # start of this incarnation on the monotonic clock
        self.updates = 0
        self.updates_per_client: Counter[int] = Counter()
        self.synchronisations = SyncCount()
        self.bytes = dict.fromkeys(WAYS, 0)
        self.messages: Counter[str] = Counter()
        self.longest_queue = 0
        self.last_score: float | None = None
        self.measured: list[MetricEvaluated] = []  # further metrics of the last evaluation
        self.reports: dict[int, dict[str, float]] = {}  # the clients' last reports
        self.client_scores: ClientScores | None = None  # unset until the run starts, or if no client evaluates
        self.by_clients: list[EvaluatedByClients] = []  # the last aggregates of the clients' evaluations
        self._evaluated_by = evaluated_by
        self.scores = ScoreHistory(higher_is_better=model.metric.higher_is_better)
        self.warned: frozenset[str] = frozenset()  # kinds of active warnings
        self._given = False  # whether the run started from a trained model
        self._updated, self._longest_gap = 0.0, 0.0  # time of the last update; longest time between two updates
        self.reached: dict[str, Hit] = {}  # first time that each target was reached

    @property
    def now(self) -> float:
        """Seconds since the server first started, over all incarnations; monotonic within an incarnation."""
        return 0.0 if self.start is None else self._elapsed + time.monotonic() - self._began

    def begin(self, unix_time: float) -> None:
        """Start the clock. Time zero is ``unix_time``, or the start of the first incarnation in the record."""
        self.start = first_fact(self.folder)
        self._has_first = self.start is not None
        if self.start is None:
            metric = self.model.metric
            self.start = run_started(self.scenario, metric.name, metric.higher_is_better, self.server, unix_time)
            if all(place.id != self.server for place in self.start.servers):
                places = self.scenario.placement()
                helps = self.server in places.helpers
                region = self.scenario.world.regions[places.server_regions[self.server]] if helps else self._region
                self.start.servers.append(ServerPlace(self.server, region or "", None if helps else 0))
            self._write_first()
        assert self.start.began is not None
        if self._evaluated_by != SERVERS:
            also = {metric.name: metric.higher_is_better for metric in self.model.also}
            self.client_scores = ClientScores(self.start, self.scenario.world.clients or (), also)
        # The wall clock may have been set back.
        self._elapsed = max(time.time() - self.start.began, newest(self.folder))
        self._began = time.monotonic()
        self._updated = self.now  # no update can have arrived earlier

    def fact(self, fact: Fact, queue: int) -> None:
        """Count and write a fact."""
        if isinstance(fact, UpdateApplied):
            self.updates += 1
            self.updates_per_client[fact.client] += 1
            now = self.now
            self._longest_gap, self._updated = max(self._longest_gap, now - self._updated), now
            self._write(now, fact, queue)
        else:
            self._given |= isinstance(fact, InitialModelLoaded)
            if isinstance(fact, ClientReported) and fact.metrics:
                self.reports[fact.client] = fact.metrics
            if self.client_scores is not None:
                self.client_scores.fact(self.now, fact)
            self.synchronisations.fact(fact)
            self._write(self.now, fact)

    def waiting(self, queue: int) -> None:
        """Note the number of messages that are queued or in service."""
        if queue > self.longest_queue:
            self.longest_queue = queue

    def carried(self, way: str, kind: str, size: int) -> None:
        """Count a sent or received message."""
        self.bytes[way] += size
        self.messages[kind] += 1

    def evaluated(self, t: float, updates: int, found: float | EvaluationResult) -> Evaluated:
        """Write the result of an evaluation at time ``t``, and log warnings."""
        assert self.start is not None
        score = found.score if isinstance(found, EvaluationResult) else found
        finite = math.isfinite(score)
        if not finite and not self._logged_not_finite:  # once: later scores will not be finite either
            self._logged_not_finite = True
            self._log.error("not-finite-score", score=repr(score), updates=updates)
        self.last_score = float(score) if finite else None  # checkpoints are JSON, which has no NaN
        for target in self.start.targets:
            if self.start.good(score, target):
                self.reached.setdefault(target_name(target), (t, updates))
        higher = self.start.higher_is_better
        fact = evaluated(updates, sum(self.bytes.values()), [score], None, higher_is_better=higher)
        self._write(t, fact)
        others = found.also if isinstance(found, EvaluationResult) else {}
        up = {metric.name: metric.higher_is_better for metric in self.model.also}
        self.measured = [measured(name, [other], None, higher_is_better=up[name]) for name, other in others.items()]
        for other in self.measured:
            self._write(t, other)
        self._log.info("evaluation", score=self.last_score, updates=updates, t=round(t, 3))
        self.scores.add(float(score))
        self._warn(t, updates)
        return fact

    def evaluated_by_clients(self, clients: int) -> Evaluated | None:
        """Write the aggregates of the clients' evaluations.

        Args:
            clients: number of clients that the server has.

        Returns:
            The evaluation that follows from them, if only clients evaluate and enough of them have done so.

        """
        if self.client_scores is None:
            return None
        t, fact = self.now, None
        if self._evaluated_by == CLIENTS:
            result = self.client_scores.evaluation(t, self.updates, 0, {self.server: clients})
            if result is not None:
                evaluation, others = result
                also = {other.name: other.mean for other in others}
                fact = self.evaluated(t, self.updates, EvaluationResult(evaluation.mean, also))
        self.by_clients = self.client_scores.aggregate(t)
        for aggregate in self.by_clients:
            self._write(t, aggregate)
        return fact

    def _warn(self, t: float, updates: int) -> None:
        """Log learning warnings when they start and when they end."""
        assert self.start is not None
        clients = next((place.clients for place in self.start.servers if place.id == self.server), None) or 1
        patience = max(SILENT_SECONDS, GAP_FACTOR * self._longest_gap) if self.updates else FIRST_SECONDS
        found, silent = [], t - self._updated
        if silent > patience:
            remedy = "Check whether clients are connected (spyker_connected_clients), and read their logs"
            found.append(RunWarning(NO_UPDATES, f"no client update arrived for {silent:,.0f} s", remedy))
        early = self.scores.count < WARM_UP or updates < WARM_UP * clients
        met = early or self._given or any(self.start.good(self.scores.last, target) for target in self.start.targets)
        found += score_warnings(self.scores, self.start.metric, updates, clients, met=met)
        for warning in found:
            if warning.kind not in self.warned:
                self._log.warning("learning-warning", **asdict(warning))
        kinds = frozenset(warning.kind for warning in found)
        for kind in sorted(self.warned - kinds):
            self._log.info("learning-again", kind=kind)
        self.warned = kinds

    def resume(self, version: int) -> int:
        """Record a restart at ``version``, and return the number of later updates, which were lost."""
        (self.folder / SUMMARY).unlink(missing_ok=True)  # of an earlier incarnation
        facts = (recorded.fact for recorded in read_back(self.folder))
        # Each update raises the version by one; a restart sets it back.
        last = next((fact.version for fact in facts if isinstance(fact, UpdateApplied | ServerResumed)), 0)
        lost = max(0, last - version)
        self._write(self.now, ServerResumed(self.server, version, lost))
        return lost

    def _write_first(self) -> None:
        """Write the record's first fact, which describes the run, unless it is written."""
        if not self._has_first and self.start is not None:
            self._has_first = self._put(0.0, self.start)

    def _write(self, t: float, fact: Fact, queue: int | None = None) -> None:
        """Write a fact. If the disk is full, count the fact as dropped and continue."""
        if self._closed:
            return
        self._write_first()
        missing = self._unwritten
        if missing is not None and self._has_first and self._put(t, missing):
            self._unwritten = None
            self._limited_log.say("info", "record-again", "", missing=missing.facts)
        blocked = self._unwritten is not None or (self.start is not None and not self._has_first)
        if blocked or not self._put(t, fact, queue):
            one = FactsDropped(self.server, 1, 0, fact.version if isinstance(fact, ServerResumed) else None)
            self._unwritten = one if self._unwritten is None else self._unwritten.and_more(one)
            self._dropped(1)

    def _put(self, t: float, fact: Fact, queue: int | None = None) -> bool:
        """Write a fact, and return whether that succeeded."""
        try:
            deleted = self._record.write(t, fact, queue)
        except OSError as error:
            self._log_failure(error)
            return False
        if deleted is not None:
            self._dropped(deleted.facts)
        return True

    def _log_failure(self, error: OSError) -> None:
        self._limited_log.say("error", "record-failed", error.strerror or repr(error), folder=str(self.folder))

    def numbers(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return {
            "began": self.start and self.start.began,
            "updates": self.updates,
            "updates_per_client": list(self.updates_per_client.items()),
            "synchronisations": [self.synchronisations.count, self.synchronisations.latest],
            "bytes": dict(self.bytes),
            "messages": dict(self.messages),
            "longest_queue": self.longest_queue,
            "last_score": self.last_score,
            "reached": dict(self.reached),
            "reports": list(self.reports.items()),
            "scores": self.scores.state(),
            "client_scores": self.client_scores and self.client_scores.state(),
            "given": self._given,
            "longest_gap": self._longest_gap,
        }

    def restore(self, numbers: dict[str, Any]) -> None:
        """Restore the state from a checkpoint."""
        self.begin(numbers["began"])  # the record may be new
        self.updates = numbers["updates"]
        self.updates_per_client = Counter(dict(numbers["updates_per_client"]))
        self.synchronisations = SyncCount(*numbers["synchronisations"])
        self.bytes = dict(numbers["bytes"])
        self.messages = Counter(numbers["messages"])
        self.longest_queue = numbers["longest_queue"]
        self.last_score = numbers["last_score"]
        self.reached = {target: (t, updates) for target, (t, updates) in numbers["reached"].items()}
        self.reports = dict(numbers["reports"])
        self.scores.restore(numbers["scores"])
        if self.client_scores is not None and numbers["client_scores"]:
            self.client_scores.restore(numbers["client_scores"])
        self._given, self._longest_gap = numbers["given"], numbers["longest_gap"]

    def close(self, summary: dict[str, Any] | None) -> None:
        """Write the summary and close the record."""
        if self._unwritten is not None:
            self._put(self.now, self._unwritten)
        self._closed = True
        try:
            self._record.close(summary)
        except OSError as error:
            self._log_failure(error)
        self._limited_log.sum_up(all=True)

    def summary(self, server: Server, clients: int, *, finished: bool) -> dict[str, Any]:
        """Return the summary of this server's run."""
        assert self.start is not None
        score, higher = self.last_score, self.start.higher_is_better
        totals = Totals(
            finished=finished,
            time=self.now,
            parameters=server.weights.snapshot().size,
            final=None if score is None else evaluated(self.updates, 0, [score], None, higher_is_better=higher),
            reached=self.reached,
            updates_per_client=[
                self.updates_per_client[k]
                for k in range(max(self.start.clients, 1 + max(self.updates_per_client, default=-1)))
            ],
            synchronisations=self.synchronisations.count,
            longest_queue=self.longest_queue,
            bytes=self.bytes,
            messages=dict(sorted(self.messages.items())),
            servers=[
                server_totals(
                    next(place.region for place in self.start.servers if place.id == self.server),
                    server,
                    clients=clients,
                    updates=self.updates,
                    longest_queue=self.longest_queue,
                )
            ],
            measured=self.measured,
            by_clients=self.by_clients,
            reports=self.reports,
            scores=self.scores,
            given=self._given,
        )
        return summarise(self.start, totals)
