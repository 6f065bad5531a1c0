"""The figures of one run: updates in final states, the longest gap without an update, and the time to the target."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from chaos.drill.server_records import ServerRecord, ServerRecords
from spyker.protocol.facts import EarlySyncStarted, Merged, SyncStarted, UpdateApplied
from spyker.records import Evaluated


@dataclass(frozen=True)
class Figures:
    """One run. Times are in seconds."""

    system: str
    faults: str
    """What was done to it; empty: nothing."""
    seconds: float
    clients: int
    training_seconds: float
    counted: int
    """Updates, applied in the run, that are in a final state."""
    lost: int
    """Updates that were applied and are not: they were lost with a disk."""
    to_target: float | None
    """When the mean score of the servers first reached the target."""
    gap: float
    """The longest time without an applied update anywhere."""
    region_gap: float
    """The longest time in which no client of some region had an update applied."""
    score: float
    """The mean score at the end."""
    kills: int = 0
    """Clients that were killed."""
    losses: int = 0
    """Servers that were destroyed."""
    floor: float = 0.0
    """Client-seconds that no system can save: the supervisor's delay, and half a training per killed client."""
    killed_seconds: float = 0.0
    """Client-seconds from kills until the restarted clients were connected."""
    moved_seconds: float = 0.0
    """Client-seconds from losses of servers until their clients were connected to others."""
    load: float = 0.0
    """Mean of the machine's load average before and after."""
    note: str = ""

    @property
    def rate(self) -> float:
        """Updates per second that count."""
        return self.counted / self.seconds

    def table(self) -> dict[str, Any]:
        """Return all values, for a file."""
        return asdict(self)


def horizon(records: ServerRecords) -> dict[int, float]:
    """Return, per server record in their order, until when its updates are in a final state.

    A server's model is snapshotted for an exchange before it records anything else of that exchange, and no earlier
    than the exchange began. So of a destroyed server the updates count until the beginning of its last exchange in
    which another one merged its model and itself lived on, or was merged later.
    """
    until = {id(life): float("inf") if life.destroyed is None else float("-inf") for life in records.servers}
    starts: dict[int, float] = {}
    for life in records.servers:
        for began in (life.facts(SyncStarted), life.facts(EarlySyncStarted)):
            for at, fact in began:
                starts[fact.bid] = min(at, starts.get(fact.bid, at))
    merges = [(at, life, fact) for life in records.servers for at, fact in life.facts(Merged)]
    lost = [life for life in records.servers if life.destroyed is not None]
    for life in sorted(lost, key=lambda each: each.destroyed or 0.0, reverse=True):
        for at, other, merge in merges:
            if other is not life and at <= until[id(other)] and present(records, merge.peer, at) is life:
                until[id(life)] = max(until[id(life)], starts.get(merge.bid, float("-inf")))
    return {i: until[id(life)] for i, life in enumerate(records.servers)}


def present(records: ServerRecords, server: int, at: float) -> ServerRecord | None:
    """Return the life of a server whose model another one merged at a time: the last that had begun by then."""
    begun = [
        life for life in records.servers if life.server == server and life.facts_read and life.facts_read[0].at <= at
    ]
    return begun[-1] if begun else None


def counted(records: ServerRecords, since: float, until: float) -> tuple[int, int]:
    """Return how many updates of a time are in final states, and how many were applied and are not."""
    kept = lost = 0
    ends = horizon(records)
    for i, life in enumerate(records.servers):
        for at, _, _ in life.applied_updates():
            if since <= at <= until:
                kept, lost = (kept + 1, lost) if at <= ends[i] else (kept, lost + 1)
    return kept, lost


def longest_gap(times: Iterable[float], since: float, until: float) -> float:
    """Return the longest time without any of some moments."""
    inside = sorted(at for at in times if since < at < until)
    return max(b - a for a, b in itertools.pairwise([since, *inside, until]))


def applied(records: ServerRecords, clients: Collection[int] | None = None) -> list[float]:
    """Return when updates of some clients were applied, of all by default."""
    return [
        at
        for life in records.servers
        for at, update in life.facts(UpdateApplied)
        if clients is None or update.client in clients
    ]


def mean_scores(records: ServerRecords) -> list[tuple[float, float]]:
    """Return the mean of the last scores of the servers that live, at each time at which it changes."""
    changes: list[tuple[float, int, float | None]] = []
    for i, life in enumerate(records.servers):
        changes += [(at, i, fact.mean) for at, fact in life.facts(Evaluated)]
        if life.destroyed is not None:
            changes.append((life.destroyed, i, None))
    last: dict[int, float] = {}
    means = []
    for at, i, score in sorted(changes, key=lambda change: change[0]):
        if score is None:
            last.pop(i, None)
        else:
            last[i] = score
        if last:
            means.append((at, sum(last.values()) / len(last)))
    return means


def reached(scores: Sequence[tuple[float, float]], target: float, since: float) -> float | None:
    """Return after how many seconds a score was first reached."""
    return next((at - since for at, score in scores if at >= since and score >= target), None)


def absent(faults: Iterable[tuple[float, int]], arrivals: Mapping[int, Sequence[float]], end: float) -> float:
    """Return the client-seconds from faults, each with the time and a client, until that client was connected again."""
    total = 0.0
    for at, client in faults:
        back = min((t for t in arrivals.get(client, ()) if t > at), default=end)
        total += min(back, end) - at
    return total


def floor_seconds(kills: int, restart: float, training: float) -> float:
    """Return the client-seconds that kills cost at least: the restart's delay, and half a training on average."""
    return kills * (restart + training / 2)
