"""What a server process writes down and counts: a run record in the emulator's format, in seconds since it began."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from spyker.config.scenario import Scenario, dump
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
from spyker.records.run_warnings import NO_UPDATES, RunWarning, ScoreHistory, score_warnings
from spyker.records.summary import WAYS, Hit, Totals, server_totals, summarise, synchronised, target_name
from spyker.tasks.registry import with_task_defaults
from spyker.tasks.served_model import ModelSpec
from spyker.tasks.task import EvaluationResult, Metric

SAME = ("algorithm", "task", "metric", "regions", "clients", "seed")
"""What one record is of, whatever else is changed between two lives."""
SILENT_SECONDS = 60.0  # without an update, after which there is a warning
FIRST_SECONDS = 600.0  # likewise before the first, when nobody knows how long a training takes
PATIENT = 3.0  # times the longest time between two updates so far, at least
SETTLED = 10  # evaluations, and updates per client, before a lack of progress is one


def make_room(folder: Path, scenario: Scenario, metric: Metric, server: int, *, resume: bool) -> None:
    """See that a record can be written, or gone on with, where the configuration says."""
    facts = folder / FACTS
    try:
        start = first_fact(folder)
        begun, foreign = start is not None and start.server == server, start is not None and start.server != server
    except RecordError:
        begun, foreign = False, True
    if begun and not resume:
        raise UsageError(
            "deploy.record",
            f"{folder} is the record of an earlier life of this server",
            "Add --resume to go on from what it saved, or name another folder",
        )
    if begun:
        assert start is not None
        ours = run_started(scenario, metric.name, metric.higher_is_better, server)
        for key in SAME:
            there, here = getattr(start, key), getattr(ours, key)
            if there != here:
                raise UsageError(
                    "deploy.record",
                    f"{folder} is the record of another scenario, whose {key} is {told(there)} and not {told(here)}",
                    "Use the scenario that it was begun with, or name another folder",
                )
    if not begun and not foreign and not (folder / SUMMARY).exists() and not has_line(facts):
        for name in (SCENARIO, FACTS):  # of a start that failed; the scenario may have been mended since
            (folder / name).unlink(missing_ok=True)
    if not begun and folder.exists() and any(folder.iterdir()):
        raise UsageError(
            "deploy.record", f"{folder} holds something else", "Name a folder that is empty or does not exist"
        )


def told(value: object) -> str:
    """A value of a record in an error."""
    return f"{value:,}" if isinstance(value, int) else str(value) if len(str(value)) < 60 else "another list"


def has_line(facts: Path) -> bool:
    """Whether more stands there than what a kill left of a first line."""
    if not facts.exists():
        return False
    with facts.open("rb") as file:
        return file.readline().endswith(b"\n")


def newest(folder: Path) -> float:
    """The time of the newest fact in a server's record. Only evaluations are written later than they happened."""
    t = 0.0
    for stated in read_back(folder):
        t = max(t, stated.t)
        if not isinstance(stated.fact, Evaluated):
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
    ) -> None:
        """The record may take up to ``limit`` bytes; ``dropped`` is told of facts that are not, or no longer, in it.

        ``region`` is that of a server that the scenario does not have.
        """
        scenario = with_task_defaults(scenario, model)
        self.scenario, self.model, self.server, self.folder = scenario, model, server, folder
        self._log, self._region = log, region
        self._complained = False
        make_room(folder, scenario, model.metric, server, resume=resume)
        self._record = RecordWriter(folder, dump(scenario), at_once=True, append=resume, server=server, limit=limit)
        self._dropped, self._repeats = dropped, RateLimitedLog(log)
        self._unwritten: FactsDropped | None = None  # facts that the disk would not take
        self._introduced = False  # whether the record's first fact is written
        self._closed = False
        self.start: RunStarted | None = None  # not before it begins
        self._before = 0.0  # seconds up to the beginning of this life, which began at this time:
        self._life = 0.0
        self.updates = 0
        self.updates_per_client: Counter[int] = Counter()
        self.synchronisations = 0
        self.bytes = dict.fromkeys(WAYS, 0)
        self.messages: Counter[str] = Counter()
        self.longest_queue = 0
        self.last_score: float | None = None
        self.measured: list[MetricEvaluated] = []  # what else the last evaluation measured
        self.reports: dict[int, dict[str, float]] = {}  # what clients reported last
        self.scores = ScoreHistory(higher_is_better=model.metric.higher_is_better)
        self.warned: frozenset[str] = frozenset()  # the kinds of warnings that hold now
        self._given = False  # whether it began from a model that was trained before
        self._updated, self._longest_gap = 0.0, 0.0  # when the last update came, and the longest time between two
        self.reached: dict[str, Hit] = {}  # by target, when it was reached first

    @property
    def now(self) -> float:
        """Seconds since this server began, over all its lives. Within a life it is a monotonic clock that counts."""
        return 0.0 if self.start is None else self._before + time.monotonic() - self._life

    def begin(self, unix_time: float) -> None:
        """A life begins. Time zero is now, or when the record's first life began: from there time goes on."""
        self.start = first_fact(self.folder)
        self._introduced = self.start is not None
        if self.start is None:
            metric = self.model.metric
            self.start = run_started(self.scenario, metric.name, metric.higher_is_better, self.server, unix_time)
            if all(place.id != self.server for place in self.start.servers):
                self.start.servers.append(ServerPlace(self.server, self._region or "", 0))
            self._introduce()
        assert self.start.began is not None
        self._before = max(time.time() - self.start.began, newest(self.folder))  # the wall clock may have been set back
        self._life = time.monotonic()
        self._updated = self.now  # nothing could come before

    def fact(self, fact: Fact, queue: int) -> None:
        """Count a fact and write it down."""
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
            self.synchronisations = synchronised(self.synchronisations, fact)
            self._write(self.now, fact)

    def waiting(self, queue: int) -> None:
        """So many messages wait, or are in service."""
        if queue > self.longest_queue:
            self.longest_queue = queue

    def carried(self, way: str, kind: str, size: int) -> None:
        """A message went out, or came in."""
        self.bytes[way] += size
        self.messages[kind] += 1

    def evaluated(self, t: float, updates: int, found: float | EvaluationResult) -> Evaluated:
        """The model was judged."""
        assert self.start is not None
        score = found.score if isinstance(found, EvaluationResult) else found
        finite = math.isfinite(score)
        if not finite and not self._complained:  # it will be no better the next time
            self._complained = True
            self._log.error("not-finite-score", score=repr(score), updates=updates)
        self.last_score = float(score) if finite else None  # a checkpoint is JSON
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

    def _warn(self, t: float, updates: int) -> None:
        """Log what keeps this server from learning, when it begins and when it is over."""
        assert self.start is not None
        clients = next((place.clients for place in self.start.servers if place.id == self.server), None) or 1
        patience = max(SILENT_SECONDS, PATIENT * self._longest_gap) if self.updates else FIRST_SECONDS
        found, silent = [], t - self._updated
        if silent > patience:
            remedy = "See whether clients are connected (spyker_connected_clients), and what their logs say"
            found.append(RunWarning(NO_UPDATES, f"no client update arrived for {silent:,.0f} s", remedy))
        early = self.scores.count < SETTLED or updates < SETTLED * clients
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
        """A new life begins at ``version``; return the number of updates that the last one had applied after it."""
        (self.folder / SUMMARY).unlink(missing_ok=True)  # of an earlier life
        told = (stated.fact for stated in read_back(self.folder))
        # Versions rise by one; a restart sets them back.
        last = next((fact.version for fact in told if isinstance(fact, UpdateApplied | ServerResumed)), 0)
        lost = max(0, last - version)
        self._write(self.now, ServerResumed(self.server, version, lost))
        return lost

    def _introduce(self) -> None:
        """Begin the record with the fact that says what it is; nothing else may come before it."""
        if not self._introduced and self.start is not None:
            self._introduced = self._put(0.0, self.start)

    def _write(self, t: float, fact: Fact, queue: int | None = None) -> None:
        """Write a fact down. Where the disk does not take it, that is counted, and the server goes on."""
        if self._closed:
            return
        self._introduce()
        missing = self._unwritten
        if missing is not None and self._introduced and self._put(t, missing):
            self._unwritten = None
            self._repeats.say("info", "record-again", "", missing=missing.facts)
        held_up = self._unwritten is not None or (self.start is not None and not self._introduced)
        if held_up or not self._put(t, fact, queue):
            one = FactsDropped(self.server, 1, 0, fact.version if isinstance(fact, ServerResumed) else None)
            self._unwritten = one if self._unwritten is None else self._unwritten.and_more(one)
            self._dropped(1)

    def _put(self, t: float, fact: Fact, queue: int | None = None) -> bool:
        """Write a fact down, if the disk takes it."""
        try:
            gone = self._record.write(t, fact, queue)
        except OSError as error:
            self._complain(error)
            return False
        if gone is not None:
            self._dropped(gone.facts)
        return True

    def _complain(self, error: OSError) -> None:
        self._repeats.say("error", "record-failed", error.strerror or repr(error), folder=str(self.folder))

    def numbers(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {
            "began": self.start and self.start.began,
            "updates": self.updates,
            "updates_per_client": list(self.updates_per_client.items()),
            "synchronisations": self.synchronisations,
            "bytes": dict(self.bytes),
            "messages": dict(self.messages),
            "longest_queue": self.longest_queue,
            "last_score": self.last_score,
            "reached": dict(self.reached),
            "reports": list(self.reports.items()),
            "scores": self.scores.state(),
            "given": self._given,
            "longest_gap": self._longest_gap,
        }

    def restore(self, numbers: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        self.begin(numbers["began"])  # the record may be a new one
        self.updates = numbers["updates"]
        self.updates_per_client = Counter(dict(numbers["updates_per_client"]))
        self.synchronisations = numbers["synchronisations"]
        self.bytes = dict(numbers["bytes"])
        self.messages = Counter(numbers["messages"])
        self.longest_queue = numbers["longest_queue"]
        self.last_score = numbers["last_score"]
        self.reached = {target: (t, updates) for target, (t, updates) in numbers["reached"].items()}
        self.reports = dict(numbers.get("reports", ()))  # which a checkpoint of an older version has not
        if "scores" in numbers:  # likewise
            self.scores.restore(numbers["scores"])
            self._given, self._longest_gap = numbers["given"], numbers["longest_gap"]

    def close(self, summary: dict[str, Any] | None) -> None:
        """Finish the record."""
        if self._unwritten is not None:
            self._put(self.now, self._unwritten)
        self._closed = True
        try:
            self._record.close(summary)
        except OSError as error:
            self._complain(error)
        self._repeats.sum_up(all=True)

    def summary(self, server: Server, clients: int, *, finished: bool) -> dict[str, Any]:
        """The totals of this server."""
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
            synchronisations=self.synchronisations,
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
            reports=self.reports,
            scores=self.scores,
            given=self._given,
        )
        return summarise(self.start, totals)
