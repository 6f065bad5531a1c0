"""The records of a deployment's servers as one record of the whole run, which plots and tables read like any other."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spyker.config.scenario import dump, from_table
from spyker.deploy.tally import BEGAN, valid_updates
from spyker.learn.registry import resolve
from spyker.records import Evaluated, Fact, RecordError, RecordWriter, Run

FACTS: dict[str, type[Any]] = {kind.kind: kind for kind in Fact.__args__}


@dataclass(slots=True)
class Part:
    """The record of one server, on the clock of the whole run."""

    run: Run
    offset: float
    updates: list[dict[str, Any]]
    evaluations: list[dict[str, Any]]

    def facts(self) -> Iterator[dict[str, Any]]:
        """Everything but evaluations, and updates that a restart made void."""
        yield from self.updates
        yield from (fact for fact in self.run.facts() if fact["kind"] not in ("update", "evaluation"))

    def at(self, t: float) -> dict[str, Any] | None:
        """The last evaluation up to a time."""
        found = None
        for evaluation in self.evaluations:
            if evaluation["t"] + self.offset > t:
                break
            found = evaluation
        return found


def merge_records(folders: Sequence[Path], out: Path) -> None:
    """Make one record of the servers' own, aligned by the times at which they began."""
    runs = [Run(folder) for folder in folders]
    zeros = [began(run) for run in runs]
    origin = min(zeros)
    parts = [
        Part(run, zero - origin, valid_updates(run), sorted(run.facts("evaluation"), key=lambda fact: fact["t"]))
        for run, zero in zip(runs, zeros, strict=True)
    ]
    scenario = resolve(from_table(runs[0].scenario))
    judged = [part for part in parts if part.evaluations]
    if not judged:
        raise RecordError(f"{folders[0]} and the others have no evaluation yet. Let them run a little longer")
    points = list(evaluations(judged, parts, scenario.evaluation.interval))
    stream = [(fact["t"] + part.offset, fact) for part in parts for fact in part.facts()]
    stream += [(t, {"kind": Evaluated.kind, **dataclasses.asdict(point)}) for t, point in points]
    stream.sort(key=lambda pair: pair[0])
    writer = RecordWriter(out, dump(scenario))
    for t, fact in stream:
        values = {key: value for key, value in fact.items() if key not in ("t", "kind", "queue")}
        writer.write(t, FACTS[fact["kind"]](**values), fact.get("queue"))
    writer.close(summary(parts, points, scenario.evaluation.targets or (), scenario.client_count))


def began(run: Run) -> float:
    """The unix time of a record's time zero."""
    try:
        return float((run.folder / BEGAN).read_text("utf-8"))
    except (OSError, ValueError):
        raise RecordError(f"{run.folder} is not the record of a server that began (it has no {BEGAN})") from None


def evaluations(judged: Sequence[Part], parts: Sequence[Part], interval: float) -> Iterator[tuple[float, Evaluated]]:
    """All servers' last scores at regular times, from when each of them has one."""
    first = max(part.evaluations[0]["t"] + part.offset for part in judged)
    last = max(part.evaluations[-1]["t"] + part.offset for part in judged)
    times = [n * interval for n in range(math.ceil(first / interval), math.floor(last / interval) + 1)]
    higher = higher_is_better(parts)
    for t in sorted({first, *times, last}):
        found = [evaluation for part in judged if (evaluation := part.at(t)) is not None]
        scores = [evaluation["mean"] for evaluation in found]
        mean, worst, best = sum(scores) / len(scores), min(scores), max(scores)
        if not higher:
            worst, best = best, worst
        updates = sum(update["t"] + part.offset <= t for part in parts for update in part.updates)
        # The mean of the servers' weights was never judged: no process has them all.
        yield t, Evaluated(updates, sum(e["bytes"] for e in found), mean, worst, best, mean, scores)


def higher_is_better(parts: Sequence[Part]) -> bool:
    """Whether more of the metric is better."""
    for part in parts:
        if part.run.summary is not None:
            return bool(part.run.summary["metric"]["higher_is_better"])
    return True


def summary(
    parts: Sequence[Part], points: Sequence[tuple[float, Evaluated]], targets: Sequence[float], clients: int
) -> dict[str, Any] | None:
    """The totals of the whole run; None unless every server has written its own."""
    own = [part.run.summary for part in parts if part.run.summary is not None]
    if len(own) < len(parts):
        return None
    higher, final = higher_is_better(parts), points[-1][1]
    reached = {}
    for target in targets:
        hits = [(t, p.updates) for t, p in points if (p.mean >= target if higher else p.mean <= target)]
        reached[f"{target:g}"] = hits[0] if hits else None
    ways = own[0]["bytes"].keys()
    kinds = sorted({kind for summary in own for kind in summary["messages"]})
    return {
        **{key: own[0][key] for key in ("spyker", "algorithm", "title", "task", "seed", "parameters", "metric")},
        "began": min(summary["began"] for summary in own),
        "finished": all(summary["finished"] for summary in own),
        "time": max(summary["time"] + part.offset for summary, part in zip(own, parts, strict=True)),
        "final": {"mean": final.mean, "worst": final.worst, "best": final.best, "averaged": final.averaged},
        "time_to_target": {target: hit and hit[0] for target, hit in reached.items()},
        "updates_to_target": {target: hit and hit[1] for target, hit in reached.items()},
        "updates": sum(summary["updates"] for summary in own),
        "updates_per_server": [summary["updates"] for summary in own if summary["servers"][0]["region"] != "cloud"],
        "updates_per_client": [sum(summary["updates_per_client"][k] for summary in own) for k in range(clients)],
        "synchronisations": max(summary["synchronisations"] for summary in own),
        "longest_queue": max(summary["longest_queue"] for summary in own),
        "bytes": {way: sum(summary["bytes"][way] for summary in own) for way in ways},
        "messages": {kind: sum(summary["messages"].get(kind, 0) for summary in own) for kind in kinds},
        "servers": [server for summary in own for server in summary["servers"] if server["region"] != "cloud"],
    }
