"""The records of a deployment's servers as one record of the whole run, which plots and tables read like any other.

Theory of operation
-------------------
A server's facts stand in the order of time, but for its evaluations: one counts for the moment at which the model was
taken and is written when its score is there. So each record is read at two places, one for evaluations and one for
everything else, and all of these streams, each in order, are merged by the times at which the servers began. Servers
judge their models at different times; the merged record has all servers' last scores at regular times.

What has been merged up to the time that every server has passed, in its evaluations and in everything else, stays as
it is, whatever the servers write. There the state of the merge is noted (``merge.json``), and the next merge goes on
from it. What comes after it is merged as if nothing would follow, and done again by the next one. So merging time and
again leaves what merging once at the end would have left, byte by byte. The exception is a server that had ended and
was started again, and one whose record has dropped facts (:mod:`~spyker.records.segments`) that no merge had come to:
then all is merged from the beginning.

Updates that a restart made void are in the merged record, as is the fact ``resumed`` that says so; see
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
from spyker.records.files import FACTS, SCENARIO, SUMMARY, contents, write_atomically
from spyker.records.lines import RecordedFact, jsonable, line, parse
from spyker.records.reader import Follower, RunRecord, read_back
from spyker.records.run_facts import (
    Evaluated,
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

STATE = "merge.json"
JUDGED = (Evaluated, MetricEvaluated)  # what an evaluation writes


class MergeStream:
    """Evaluations, or everything else, of one server, on the clock of the whole run."""

    def __init__(self, part: MergePart, *, evaluations: bool, offset: int = 0) -> None:
        self.part, self.evaluations = part, evaluations
        kinds = JUDGED if evaluations else ()
        self._follower = Follower(part.run.folder, *kinds, offset=offset)
        self._news = self._follower.poll()
        self.head: RecordedFact[Fact] | None = None
        self.step()

    def step(self) -> None:
        """Go on to the next fact; ``offset`` is where it can be read again."""
        self.offset = self._follower.offset
        for stated in self._news:
            if self.evaluations or not isinstance(stated.fact, (*JUDGED, RunStarted)):
                self.head = stated
                return
            self.offset = self._follower.offset
        self.head = None

    @property
    def order(self) -> tuple[float, int, bool]:
        """What comes first, of all servers' heads."""
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
    """Seconds from the beginning of the whole run to that of this server."""
    size: int = field(init=False)
    """Of its facts, in bytes."""
    judged: bool = field(init=False)
    """Whether its model was ever judged."""

    def __post_init__(self) -> None:
        self.size = end(self.run.folder)
        self.judged = not self.cloud and next(self.run.facts(Evaluated), None) is not None

    @property
    def cloud(self) -> bool:
        """Whether this is a server without clients, which is not judged."""
        return self.run.start.servers[self.id].clients is None

    @property
    def ended(self) -> bool:
        """Whether the server has ended in good order."""
        return self.run.summary is not None

    def numbers(self, offsets: list[int]) -> dict[str, Any]:
        """What the next merge must know of it, and where its two streams go on."""
        found = {"server": self.id, "began": self.began, "size": self.size, "ended": self.ended, "judged": self.judged}
        return found | {"offsets": offsets}

    def passed(self) -> float:
        """The time before which nothing more will be written; no end of it, if the server has ended."""
        if self.ended:
            return math.inf
        newest: dict[bool, float] = {}
        if self.judged or self.cloud:
            for stated in read_back(self.run.folder):
                newest.setdefault(isinstance(stated.fact, JUDGED), stated.t + self.ahead)
                if len(newest) == 1 + self.judged:
                    return min(newest.values())
        return -math.inf


def merge(folders: Sequence[Path], out: Path) -> None:
    """Make one record of the servers' own, or go on with one that was made of them before."""
    parts = read_parts(folders)
    longest = max((part.run.start for part in parts), key=lambda start: len(start.servers))  # who was added knows more
    start = replace(longest, server=None, began=min(part.began for part in parts))
    state = earlier(parts, out)
    if not state:
        out.mkdir(parents=True, exist_ok=True)
        note(out, {"size": 0, "parts": [part.numbers([0, 0]) for part in parts]})  # what stands there goes now
        write_atomically(out / SCENARIO, (parts[0].run.folder / SCENARIO).read_text("utf-8"))
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
            (out / SUMMARY).unlink(missing_ok=True)  # of servers that went on
        writer.close(summary)
    note(out, merger.noted)


def note(out: Path, state: dict[str, Any]) -> None:
    """Write down from where the next merge goes on."""
    write_atomically(out / STATE, json.dumps(jsonable(state)) + "\n")


def read_parts(folders: Sequence[Path]) -> list[MergePart]:
    """The records of servers of one deployment, in the order of the servers."""
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
    """What the servers of one deployment have in common. Each may have been upgraded, or added, at another time."""
    return replace(start, server=None, began=None, spyker="", servers=[])


def earlier(parts: Sequence[MergePart], out: Path) -> dict[str, Any]:
    """The state of an earlier merge into ``out`` from which this one can go on; nothing, if it has to begin anew."""
    path = out / STATE
    if not path.exists():
        if out.exists() and (not out.is_dir() or contents(out)):
            raise RecordError(f"{out} exists already and was not merged of records. Choose another --out")
        return {}
    try:
        state: dict[str, Any] = json.loads(path.read_text("utf-8"))
        before = {part["server"]: part for part in state["parts"]}
        ours = {part.id: part for part in parts}
        if any(server not in ours or part["began"] != ours[server].began for server, part in before.items()):
            raise RecordError(f"{out} was merged of other servers' records. Choose another --out")
        same = state["size"] > 0 and len(before) == len(ours) and (out / FACTS).stat().st_size >= state["size"]
        for server, part in before.items():
            grown = ours[server].size - part["size"]
            same &= not any(is_gone(ours[server].run.folder, offset) for offset in part["offsets"])
            same &= part["judged"] == ours[server].judged and (grown == 0 if part["ended"] else grown >= 0)
    except (OSError, ValueError, KeyError, TypeError):
        raise RecordError(f"{path} cannot be read. Delete {out} to merge from the beginning") from None
    return state if same else {}


class Merger:
    """One pass over what is new."""

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
        self.last: dict[int, tuple[float, int]] = {  # by server, the last evaluation's score and bytes
            int(k): (math.nan if score is None else score, size) for k, (score, size) in state.get("last", {}).items()
        }
        self.due: float | None = state.get("due")  # the next time at which all are judged
        self.reached: dict[str, Hit] = {target: (t, n) for target, (t, n) in state.get("reached", {}).items()}
        final = parse(state["final"]) if state.get("final") else None
        self.final = final.fact if final is not None and isinstance(final.fact, Evaluated) else None
        self.others: dict[str, MetricEvaluated] = {}  # by name, what else was measured, one score for every server
        self.others_of: dict[str, dict[int, tuple[bool, float]]] = {  # by name and server: is more better? and the last
            name: {int(k): (up, math.nan if score is None else score) for k, (up, score) in of.items()}
            for name, of in state.get("others", {}).items()
        }
        self.scores = ScoreHistory(higher_is_better=start.higher_is_better)
        if "scores" in state:
            self.scores.restore(state["scores"])
        self.given = bool(state.get("given"))  # whether it began from a model that was trained before
        self.reports: dict[int, dict[str, float]] = {int(k): each for k, each in state.get("reports", {}).items()}
        self.noted: dict[str, Any] = {}

    def run(self) -> None:
        """Merge what is there, and note the state where all servers have passed."""
        passed = min(part.passed() for part in self.parts)
        heap = [stream for stream in self.streams if stream.head is not None]
        heapq.heapify(heap)
        while heap:
            stream = heap[0]
            t = stream.order[0]
            if not self.noted and t >= passed:
                self.noted = self.state()
            while self.due is not None and self.due < t:
                self.judge()
            assert stream.head is not None
            self.take(t, stream.part.id, stream.head)
            stream.step()
            if stream.head is None:
                heapq.heappop(heap)
            else:
                heapq.heapreplace(heap, stream)
            if stream.evaluations and not any(other.evaluations for other in heap):
                self.due = t  # the last one of all
        if not self.noted:
            self.noted = self.state()
        if self.due is not None:
            self.judge()

    def take(self, t: float, server: int, stated: RecordedFact[Fact]) -> None:
        """One fact of a server."""
        fact = stated.fact
        if isinstance(fact, Evaluated):
            self.last[server] = fact.mean, fact.bytes
            if self.due is None and self.final is None and self.there(t) <= self.last.keys():
                self.due = t  # the first at which all who are there have a score
            return
        if isinstance(fact, MetricEvaluated):
            self.others_of.setdefault(fact.name, {})[server] = fact.higher_is_better, fact.mean
            return
        self.given |= isinstance(fact, InitialModelLoaded)
        if isinstance(fact, ClientReported) and fact.metrics:
            self.reports[fact.client] = fact.metrics
        if isinstance(fact, UpdateApplied | ServerResumed):
            self.versions[server] = fact.version  # of which each is one update more
        self.writer.write(t, fact, stated.queue)

    def there(self, t: float) -> set[int]:
        """Who is judged at some time: not those who begin much later than the others."""
        return {part.id for part in self.parts if part.judged and part.ahead <= t + self.start.interval}

    def judge(self) -> None:
        """All servers' last scores. The mean of their weights was never judged: no process has them all."""
        assert self.due is not None
        t, scores = self.due, [self.last[server][0] for server in sorted(self.last)]
        size, updates = sum(size for _, size in self.last.values()), sum(self.versions.values())
        self.final = evaluated(updates, size, scores, None, higher_is_better=self.start.higher_is_better)
        self.scores.add(self.final.mean)
        self.writer.write(t, self.final)
        for name, of in self.others_of.items():
            if of.keys() >= self.last.keys():
                others = [of[server][1] for server in sorted(self.last)]
                self.others[name] = measured(name, others, None, higher_is_better=next(iter(of.values()))[0])
                self.writer.write(t, self.others[name])
        for target in self.start.targets:
            if self.start.good(self.final.mean, target):
                self.reached.setdefault(target_name(target), (round(t, 9), updates))
        more = any(stream.evaluations and stream.head is not None for stream in self.streams)
        turn = math.floor(t / self.start.interval + 1e-9)  # t may be a product of the two, and their quotient less
        self.due = self.start.interval * (turn + 1) if more else None

    def state(self) -> dict[str, Any]:
        """From where the next merge goes on."""
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
            "scores": self.scores.state(),
            "given": self.given,
        }

    def summary(self) -> dict[str, Any] | None:
        """The totals of the whole run; None unless every server has written its own."""
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
            reports=self.reports,
            scores=self.scores,
            given=self.given,
        )
        return summarise(self.start, totals)
