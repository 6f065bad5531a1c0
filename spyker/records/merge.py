"""Merging of the run records of a deployment's servers into one.

Theory of operation
-------------------
A server's facts are ordered by time, except evaluations: an evaluation has the time of its model and is written when
its score is known. Each record is therefore read as two ordered streams, evaluations and all other facts, and all
streams are merged on one clock. Servers evaluate their models at different times; the merged record has all servers'
latest scores at regular times.

Facts up to the time that every server has passed in both streams are final. There the state of the merge is saved
(``merge.json``), and the next merge continues from it. Later facts are merged provisionally and again by the next
merge. Repeated merging is therefore byte-identical to merging once at the end. There are two exceptions, which restart
the merge from the beginning: a server that had ended and was started again, and a record that dropped facts
(:mod:`~spyker.records.segments`) before they were merged.

Updates lost in a restart stay in the merged record, followed by the fact ``server-resumed``; see
:meth:`~spyker.records.reader.RunRecord.updates`.
"""

from __future__ import annotations

import heapq
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from spyker.errors import RecordError
from spyker.protocol.facts import ClientReported, Fact, UpdateApplied
from spyker.records.client_scores import ClientScores, clients_per_region
from spyker.records.files import FACTS, SCENARIO, SUMMARY, contents, write_atomically
from spyker.records.lines import RecordedFact, jsonable, line, parse
from spyker.records.reader import Follower, RunRecord, read_back
from spyker.records.run_facts import (
    Evaluated,
    EvaluatedByClients,
    InitialModelLoaded,
    MetricEvaluated,
    RunStarted,
    ServerResumed,
    evaluated,
    measured,
)
from spyker.records.run_warnings import ScoreHistory
from spyker.records.segments import end, is_gone
from spyker.records.summary import WAYS, Hit, Totals, summarise, target_name
from spyker.records.writer import RecordWriter
from spyker.untrusted_files import read_json, read_text

STATE = "merge.json"
EVALUATIONS = (Evaluated, MetricEvaluated)  # facts of an evaluation


class MergeStream:
    """The evaluations, or all other facts, of one server, on the clock of the merged run."""

    def __init__(self, part: MergePart, *, evaluations: bool, offset: int = 0) -> None:
        self.part, self.evaluations = part, evaluations
        kinds = EVALUATIONS if evaluations else ()
        self._follower = Follower(part.run.folder, *kinds, offset=offset)
        self._news = self._follower.poll()
        self.head: RecordedFact[Fact] | None = None
        self.step()

    def step(self) -> None:
        """Advance to the next fact; ``offset`` is its position in the record."""
        self.offset = self._follower.offset
        for recorded in self._news:
            if self.evaluations or not isinstance(recorded.fact, (*EVALUATIONS, RunStarted)):
                self.head = recorded
                return
            self.offset = self._follower.offset
        self.head = None

    @property
    def order(self) -> tuple[float, int, bool]:
        """Sort key of the next fact."""
        assert self.head is not None
        return self.head.t + self.part.ahead, self.part.id, self.evaluations

    def __lt__(self, other: MergeStream) -> bool:
        return self.order < other.order


@dataclass(slots=True)
class MergePart:
    """The record of one server."""

    run: RunRecord
    id: int
    began: float
    ahead: float = 0.0
    """Seconds from the start of the run to the start of this server."""
    size: int = field(init=False)
    """Size of its facts in bytes."""
    judged: bool = field(init=False)
    """Whether its model was ever evaluated."""

    def __post_init__(self) -> None:
        self.size = end(self.run.folder)
        self.judged = not self.cloud and next(self.run.facts(Evaluated), None) is not None

    @property
    def cloud(self) -> bool:
        """Whether this is a server without clients, which is not evaluated."""
        return self.run.start.servers[self.id].clients is None

    @property
    def ended(self) -> bool:
        """Whether the server ended cleanly."""
        return self.run.summary is not None

    def numbers(self, offsets: list[int]) -> dict[str, Any]:
        """Return the state for the next merge, including the offsets of both streams."""
        found = {"server": self.id, "began": self.began, "size": self.size, "ended": self.ended, "judged": self.judged}
        return found | {"offsets": offsets}

    def passed(self) -> float:
        """The time before which all facts are written; infinite if the server has ended."""
        if self.ended:
            return math.inf
        newest: dict[bool, float] = {}
        if self.judged or self.cloud:
            for recorded in read_back(self.run.folder):
                newest.setdefault(isinstance(recorded.fact, EVALUATIONS), recorded.t + self.ahead)
                if len(newest) == 1 + self.judged:
                    return min(newest.values())
        return -math.inf


def merge(folders: Sequence[Path], out: Path) -> None:
    """Merge servers' records into ``out``, or continue an earlier merge.

    Args:
        folders: the records of the servers.
        out: folder of the merged record.

    Raises:
        RecordError: a folder is not a server's record, or ``out`` is not a merged record of these servers.

    """
    parts = read_parts(folders)
    longest = max(
        (part.run.start for part in parts), key=lambda start: len(start.servers)
    )  # an added server knows all others
    start = replace(longest, server=None, began=min(part.began for part in parts))
    state = earlier(parts, out)
    if not state:
        out.mkdir(parents=True, exist_ok=True)
        note(out, {"size": 0, "parts": [part.numbers([0, 0]) for part in parts]})  # discards the earlier merge
        write_atomically(out / SCENARIO, read_text(parts[0].run.folder / SCENARIO))
    with (out / FACTS).open("ab") as facts:
        facts.truncate(state.get("size", 0))
    writer = RecordWriter(out, "", append=True)
    if not state:
        writer.write(0.0, start)
    merger, summary = Merger(start, parts, writer, state), None
    try:
        merger.run()
        summary = merger.summary()
    finally:
        if summary is None:
            (out / SUMMARY).unlink(missing_ok=True)  # from servers that were resumed
        writer.close(summary)
    note(out, merger.saved_state)


def note(out: Path, state: dict[str, Any]) -> None:
    """Save the state for the next merge."""
    write_atomically(out / STATE, json.dumps(jsonable(state)) + "\n")


def read_parts(folders: Sequence[Path]) -> list[MergePart]:
    """Read the records of a deployment's servers, in the order of their numbers."""
    parts: dict[int, MergePart] = {}
    for folder in folders:
        run = RunRecord(folder)
        start = run.start
        if start.server is None or start.began is None:
            raise RecordError(f"{folder} is not the record of one deployed server. Name folders of deploy.record")
        if start.server in parts:
            first = parts[start.server].run.folder
            raise RecordError(f"{first} and {folder} are both of server {start.server}. Name each server's once")
        parts[start.server] = MergePart(run, start.server, start.began)
    ordered = [parts[server] for server in sorted(parts)]
    for part in ordered[1:]:
        if deployment(part.run.start) != deployment(ordered[0].run.start):
            raise RecordError(
                f"{part.run.folder} and {ordered[0].run.folder} are of different deployments. Name the servers of one"
            )
    origin = min(part.began for part in ordered)
    for part in ordered:
        part.ahead = part.began - origin
    return ordered


def deployment(start: RunStarted) -> RunStarted:
    """Return the fields that are equal on all servers of a deployment, except version and membership."""
    return replace(start, server=None, began=None, spyker="", servers=[])


def earlier(parts: Sequence[MergePart], out: Path) -> dict[str, Any]:
    """Return the state of an earlier merge into ``out``; empty if the merge must restart."""
    path = out / STATE
    if not path.exists():
        if out.exists() and (not out.is_dir() or contents(out)):
            raise RecordError(f"{out} exists already and is not a merged record. Choose another --out")
        return {}
    try:
        state: dict[str, Any] = read_json(path)
        before = {part["server"]: part for part in state["parts"]}
        ours = {part.id: part for part in parts}
        if any(server not in ours or part["began"] != ours[server].began for server, part in before.items()):
            raise RecordError(f"{out} was merged from other servers' records. Choose another --out")
        same = state["size"] > 0 and len(before) == len(ours) and (out / FACTS).stat().st_size >= state["size"]
        for server, part in before.items():
            grown = ours[server].size - part["size"]
            same &= not any(is_gone(ours[server].run.folder, offset) for offset in part["offsets"])
            same &= part["judged"] == ours[server].judged and (grown == 0 if part["ended"] else grown >= 0)
    except (OSError, ValueError, KeyError, TypeError):
        raise RecordError(f"{path} cannot be read. Delete {out} to merge from the beginning") from None
    return state if same else {}


class Merger:
    """One merge of new facts."""

    def __init__(
        self, start: RunStarted, parts: Sequence[MergePart], writer: RecordWriter, state: dict[str, Any]
    ) -> None:
        self.start, self.parts, self.writer = start, parts, writer
        places = {part["server"]: part for part in state.get("parts", ())}
        self.streams = [
            MergeStream(part, evaluations=kind, offset=places[part.id]["offsets"][kind] if places else 0)
            for part in parts
            for kind in (False, True)
        ]
        self.versions: dict[int, int] = {int(k): version for k, version in state.get("versions", {}).items()}
        self.last: dict[int, tuple[float, int]] = {  # latest score and bytes, by server
            int(k): (math.nan if score is None else score, size) for k, (score, size) in state.get("last", {}).items()
        }
        self.due: float | None = state.get("due")  # time of the next merged evaluation
        self.reached: dict[str, Hit] = {target: (t, n) for target, (t, n) in state.get("reached", {}).items()}
        final = parse(state["final"]) if state.get("final") else None
        self.final = final.fact if final is not None and isinstance(final.fact, Evaluated) else None
        self.others: dict[str, MetricEvaluated] = {}  # further metrics by name, with one score per server
        self.others_of: dict[
            str, dict[int, tuple[bool, float]]
        ] = {  # by name and server: higher_is_better, and the last score
            name: {int(k): (up, math.nan if score is None else score) for k, (up, score) in of.items()}
            for name, of in state.get("others", {}).items()
        }
        self.by_clients: list[EvaluatedByClients] = []  # at the last evaluation
        self.evaluated_by = parts[0].run.evaluated_by
        self.client_scores = ClientScores(start, clients_per_region(parts[0].run.scenario))
        if "client_scores" in state:
            self.client_scores.restore(state["client_scores"])
        self.scores = ScoreHistory(higher_is_better=start.higher_is_better)
        if "scores" in state:
            self.scores.restore(state["scores"])
        self.given = bool(state.get("given"))  # whether the run has an initial model from a file
        self.reports: dict[int, dict[str, float]] = {int(k): each for k, each in state.get("reports", {}).items()}
        self.saved_state: dict[str, Any] = {}

    def run(self) -> None:
        """Merge all facts, and save the state at the time that all servers have passed."""
        passed = min(part.passed() for part in self.parts)
        heap = [stream for stream in self.streams if stream.head is not None]
        heapq.heapify(heap)
        while heap:
            stream = heap[0]
            t = stream.order[0]
            if not self.saved_state and t >= passed:
                self.saved_state = self.state()
            while self.due is not None and self.due < t:
                self.write_evaluation()
            assert stream.head is not None
            self.process(t, stream.part.id, stream.head)
            stream.step()
            if stream.head is None:
                heapq.heappop(heap)
            else:
                heapq.heapreplace(heap, stream)
            if stream.evaluations and not any(other.evaluations for other in heap):
                self.due = t  # the final evaluation
        if not self.saved_state:
            self.saved_state = self.state()
        if self.due is not None:
            self.write_evaluation()

    def process(self, t: float, server: int, recorded: RecordedFact[Fact]) -> None:
        """Process one fact of a server."""
        fact = recorded.fact
        if isinstance(fact, Evaluated):
            self.last[server] = fact.mean, fact.bytes
            if self.due is None and self.final is None and self.evaluated_servers(t) <= self.last.keys():
                self.due = t  # the first time at which all servers that have started have a score
            return
        if isinstance(fact, MetricEvaluated):
            self.others_of.setdefault(fact.name, {})[server] = fact.higher_is_better, fact.mean
            return
        if isinstance(fact, EvaluatedByClients):  # of this server's clients alone
            self.client_scores.higher_is_better[fact.name] = fact.higher_is_better
            return
        self.client_scores.fact(t, fact)
        self.given |= isinstance(fact, InitialModelLoaded)
        if isinstance(fact, ClientReported) and fact.metrics:
            self.reports[fact.client] = fact.metrics
        if isinstance(fact, UpdateApplied | ServerResumed):
            self.versions[server] = fact.version  # each update raises the version by one
        self.writer.write(t, fact, recorded.queue)

    def evaluated_servers(self, t: float) -> set[int]:
        """Return the servers to evaluate at a time, without those that start much later."""
        return {part.id for part in self.parts if part.judged and part.ahead <= t + self.start.interval}

    def write_evaluation(self) -> None:
        """Write an evaluation with all servers' latest scores. No process can evaluate their averaged weights."""
        assert self.due is not None
        t, scores = self.due, [self.last[server][0] for server in sorted(self.last)]
        size, updates = sum(size for _, size in self.last.values()), sum(self.versions.values())
        self.final = evaluated(updates, size, scores, None, higher_is_better=self.start.higher_is_better)
        self.by_clients = self.client_scores.aggregate(t)
        means = {each.name: each.weighted_mean for each in self.by_clients} if self.evaluated_by == "clients" else {}
        if self.start.metric in means:  # the mean of all clients, not of servers with few and with many
            mean = means[self.start.metric]
            self.final = replace(self.final, mean=mean, averaged=mean)
        self.scores.add(self.final.mean)
        self.writer.write(t, self.final)
        for name, of in self.others_of.items():
            if of.keys() >= self.last.keys():
                others = [of[server][1] for server in sorted(self.last)]
                self.others[name] = measured(name, others, None, higher_is_better=next(iter(of.values()))[0])
                if name in means:
                    self.others[name] = replace(self.others[name], mean=means[name], averaged=means[name])
                self.writer.write(t, self.others[name])
        for aggregate in self.by_clients:
            self.writer.write(t, aggregate)
        for target in self.start.targets:
            if self.start.good(self.final.mean, target):
                self.reached.setdefault(target_name(target), (round(t, 9), updates))
        more = any(stream.evaluations and stream.head is not None for stream in self.streams)
        turn = math.floor(t / self.start.interval + 1e-9)  # t may be a product of the two, and their quotient less
        self.due = self.start.interval * (turn + 1) if more else None

    def state(self) -> dict[str, Any]:
        """Return the state for the next merge."""
        offsets = {(stream.part.id, stream.evaluations): stream.offset for stream in self.streams}
        return {
            "size": self.writer.size,
            "parts": [part.numbers([offsets[part.id, False], offsets[part.id, True]]) for part in self.parts],
            "versions": dict(self.versions),
            "last": dict(self.last),
            "due": self.due,
            "reached": dict(self.reached),
            "final": self.final and line(0.0, self.final),
            "others": {name: dict(of) for name, of in self.others_of.items()},
            "reports": dict(self.reports),
            "client_scores": self.client_scores.state(),
            "scores": self.scores.state(),
            "given": self.given,
        }

    def summary(self) -> dict[str, Any] | None:
        """Return the summary of the run; ``None`` unless every server has written its summary."""
        own = [part.run.summary for part in self.parts if part.run.summary is not None]
        if len(own) < len(self.parts):
            return None
        kinds = sorted({kind for each in own for kind in each["messages"]})
        totals = Totals(
            finished=all(each["finished"] for each in own),
            time=max(each["time"] + part.ahead for each, part in zip(own, self.parts, strict=True)),
            parameters=own[0]["parameters"],
            final=self.final,
            reached=self.reached,
            updates_per_client=[sum(each["updates_per_client"][k] for each in own) for k in range(self.start.clients)],
            synchronisations=max(each["synchronisations"] for each in own),
            longest_queue=max(each["longest_queue"] for each in own),
            bytes={way: sum(each["bytes"][way] for each in own) for way in WAYS},
            messages={kind: sum(each["messages"].get(kind, 0) for each in own) for kind in kinds},
            servers=[each["servers"][0] for each, part in zip(own, self.parts, strict=True) if not part.cloud],
            measured=list(self.others.values()),
            by_clients=self.by_clients,
            reports=self.reports,
            scores=self.scores,
            given=self.given,
        )
        return summarise(self.start, totals)
