"""What a server process writes down and counts: a run record in the emulator's format, in seconds since it began."""

from __future__ import annotations

import math
import time
from collections import Counter
from pathlib import Path
from typing import Any

from spyker import __version__
from spyker.config.scenario import Scenario, dump
from spyker.config.sections import ScenarioError
from spyker.deploy.log import Log
from spyker.learn.registry import with_targets
from spyker.learn.task import Task
from spyker.protocol.facts import CloudRoundEnded, SyncStarted, UpdateApplied
from spyker.protocol.facts import Fact as ProtocolFact
from spyker.protocol.server import Server
from spyker.records import (
    FACTS,
    SCENARIO,
    SUMMARY,
    Evaluated,
    Fact,
    RecordWriter,
    Resumed,
    Run,
    write_atomically,
)

BEGAN = "began"  # a file in the record: the unix time of its time zero, by which records are aligned
WEIGHTS_SHOWN = 64  # the summary holds the weights of models with up to so many parameters


def valid_updates(run: Run) -> list[dict[str, Any]]:
    """The update facts of a server that still hold: a restart from a checkpoint makes void what came after it."""
    updates: list[dict[str, Any]] = []
    for fact in run.facts():
        if fact["kind"] == "update":
            updates.append(fact)
        elif fact["kind"] == "resumed":
            updates = [update for update in updates if update["version"] <= fact["version"]]
    return updates


def make_room(folder: Path, *, resume: bool) -> None:
    """See that a record can be written, or gone on with, where the configuration says."""
    facts = folder / FACTS
    begun = (folder / BEGAN).exists()
    if begun and not resume:
        raise ScenarioError(
            "deploy.record",
            f"{folder} is the record of an earlier life of this server",
            "Add --resume to go on from what it saved, or name another folder",
        )
    empty = not facts.exists() or not facts.stat().st_size
    if not begun and empty and not (folder / SUMMARY).exists():
        for name in (SCENARIO, FACTS):  # of a start that failed; the scenario may have been mended since
            (folder / name).unlink(missing_ok=True)
    if not begun and folder.exists() and any(folder.iterdir()):
        raise ScenarioError(
            "deploy.record", f"{folder} holds something else", "Name a folder that is empty or does not exist"
        )


class Tally:
    """Counts and records the facts of one server."""

    def __init__(self, scenario: Scenario, task: Task, server: int, folder: Path, *, resume: bool, log: Log) -> None:
        scenario = with_targets(scenario, task.metric)
        self.scenario, self.task, self.server, self.folder = scenario, task, server, folder
        self._log = log
        self._complained = False
        make_room(folder, resume=resume)
        self._record = RecordWriter(folder, dump(scenario), at_once=True, append=resume)
        self._closed = False
        self.began: float | None = None  # unix time
        self.updates = 0
        self.updates_per_client: Counter[int] = Counter()
        self.synchronisations = 0
        self.bytes = {"server-to-client": 0, "client-to-server": 0, "server-to-server": 0}
        self.messages: Counter[str] = Counter()
        self.longest_queue = 0
        self.last_score: float | None = None
        self.reached: dict[str, tuple[float, int]] = {}  # by target, when it was reached first: time, updates

    @property
    def now(self) -> float:
        """Seconds since this server began, over all its lives."""
        return 0.0 if self.began is None else time.time() - self.began

    def begin(self, unix_time: float) -> None:
        """Time zero."""
        self.began = unix_time
        write_atomically(self.folder / BEGAN, f"{unix_time!r}\n")

    def fact(self, fact: ProtocolFact, queue: int) -> int:
        """Write a fact down; 1 if it is an update, otherwise 0."""
        if isinstance(fact, UpdateApplied):
            self.updates += 1
            self.updates_per_client[fact.client] += 1
            self._write(self.now, fact, queue)
            return 1
        if isinstance(fact, SyncStarted):
            self.synchronisations = max(self.synchronisations, fact.bid)
        elif isinstance(fact, CloudRoundEnded):
            self.synchronisations += 1
        self._write(self.now, fact)
        return 0

    def waiting(self, queue: int) -> None:
        """So many messages wait, or are in service."""
        if queue > self.longest_queue:
            self.longest_queue = queue

    def carried(self, way: str, kind: str, size: int) -> None:
        """A message went out, or came in."""
        self.bytes[way] += size
        self.messages[kind] += 1

    def evaluated(self, t: float, updates: int, score: float) -> None:
        """The model was judged. A score that is not a number has no place in a record, nor in a checkpoint: both are
        JSON.
        """
        if not math.isfinite(score):
            if not self._complained:  # it will be no better the next time
                self._complained = True
                self._log.error("not-finite-score", score=repr(score), updates=updates)
            return
        self.last_score = score
        for target in self.scenario.evaluation.targets or ():
            if score >= target if self.task.metric.higher_is_better else score <= target:
                self.reached.setdefault(f"{target:g}", (t, updates))
        self._write(t, Evaluated(updates, sum(self.bytes.values()), score, score, score, score, [score]))

    def resume(self, version: int) -> int:
        """A new life begins at ``version``; return the number of updates that the last one had applied after it."""
        last = Run(self.folder).last_fact("update", "resumed")  # versions rise by one; a restart sets them back
        lost = 0 if last is None else max(0, last["version"] - version)
        self._write(self.now, Resumed(self.server, version, lost))
        return lost

    def _write(self, t: float, fact: Fact, queue: int | None = None) -> None:
        if not self._closed:
            self._record.write(t, fact, queue)

    def numbers(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {
            "began": self.began,
            "updates": self.updates,
            "updates_per_client": list(self.updates_per_client.items()),
            "synchronisations": self.synchronisations,
            "bytes": dict(self.bytes),
            "messages": dict(self.messages),
            "longest_queue": self.longest_queue,
            "last_score": self.last_score,
            "reached": dict(self.reached),
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

    def close(self, summary: dict[str, Any] | None) -> None:
        """Finish the record."""
        self._closed = True
        self._record.close(summary)

    def summary(self, server: Server, clients: int, *, finished: bool) -> dict[str, Any]:
        """The totals of this server, under the names that the emulator uses."""
        scenario, metric = self.scenario, self.task.metric
        weights = server.weights.snapshot()
        reached = {
            name: self.reached.get(name) for name in (f"{target:g}" for target in scenario.evaluation.targets or ())
        }
        regions = scenario.world.regions
        return {
            "spyker": __version__,
            "algorithm": scenario.algorithm,
            "title": scenario.chosen.title,
            "task": scenario.task.name,
            "seed": scenario.seed,
            "server": self.server,
            "began": self.began,
            "finished": finished,
            "time": round(self.now, 9),
            "parameters": weights.size,
            "metric": {"name": metric.name, "higher_is_better": metric.higher_is_better},
            "final": dict.fromkeys(("mean", "worst", "best", "averaged"), self.last_score),
            "time_to_target": {target: hit and hit[0] for target, hit in reached.items()},
            "updates_to_target": {target: hit and hit[1] for target, hit in reached.items()},
            "updates": self.updates,
            "updates_per_client": [self.updates_per_client[k] for k in range(scenario.client_count)],
            "synchronisations": self.synchronisations,
            "longest_queue": self.longest_queue,
            "bytes": {"total": sum(self.bytes.values()), **self.bytes},
            "messages": dict(sorted(self.messages.items())),
            "servers": [
                {
                    "region": regions[self.server] if self.server < len(regions) else "cloud",
                    "clients": clients,
                    "updates": self.updates,
                    "age": server.age,
                    "version": server.version,
                    "longest_queue": self.longest_queue,
                    **({"weights": weights.tolist()} if weights.size <= WEIGHTS_SHOWN else {}),
                }
            ],
        }
