"""The run records of all servers of a drill on one clock, including those of servers that lost their disks.

A server with a new state has a new record; a restart continues it. All servers run on one machine, so the times of
their records can be compared.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeVar

from chaos.drill.task import STEP
from spyker.protocol.facts import ClientReported, Fact, Merged, SyncStarted, UpdateApplied
from spyker.records import Follower, RunStarted, ServerResumed

F = TypeVar("F", bound=Fact)


class TimedFact(NamedTuple):
    """A fact and its Unix time."""

    at: float
    fact: Fact


@dataclass
class ServerRecord:
    """The record of one server, until the loss of its disk."""

    server: int
    number: int
    """Number of earlier servers with this number."""
    follower: Follower
    facts_read: list[TimedFact] = field(default_factory=list)
    destroyed: float | None = None
    _began: float = 0.0

    def poll(self) -> None:
        """Read the facts that were written since the last call."""
        for t, fact, _ in self.follower.poll():
            if isinstance(fact, RunStarted):
                self._began = fact.began or 0.0
            self.facts_read.append(TimedFact(self._began + t, fact))

    def facts(self, kind: type[F], since: float = 0.0, until: float = float("inf")) -> Iterator[tuple[float, F]]:
        """Yield the facts of a kind between two times."""
        for at, fact in self.facts_read[bisect.bisect_left(self.facts_read, since, key=lambda timed: timed.at) :]:
            if at > until:
                return
            if isinstance(fact, kind):
                yield at, fact

    def applied_updates(self) -> list[tuple[float, UpdateApplied, int | None]]:
        """Return the updates that no restart undid, with the number that the client gave each, if it is in the record.

        A client has one task at a time, so an update and the client's report belong together in either order:
        algorithms with rounds record updates at the end of the round.
        """
        kept: list[tuple[float, UpdateApplied, int | None]] = []
        unnumbered: dict[int, int] = {}  # by client, the index of an update whose number is not known yet
        steps: dict[int, int] = {}  # by client, a reported number whose update is not recorded yet
        for at, fact in self.facts_read:
            if isinstance(fact, UpdateApplied):
                step = steps.pop(fact.client, None)
                if step is None:
                    unnumbered[fact.client] = len(kept)
                kept.append((at, fact, step))
            elif isinstance(fact, ClientReported):
                place = unnumbered.pop(fact.client, None)
                if place is None:
                    steps[fact.client] = int(fact.metrics[STEP])
                else:
                    kept[place] = (*kept[place][:2], int(fact.metrics[STEP]))
            elif isinstance(fact, ServerResumed):
                unnumbered.clear()
                steps.clear()
                while kept and kept[-1][1].version > fact.version:
                    kept.pop()
        return kept


class ServerRecords:
    """The records of all servers of a drill."""

    def __init__(self) -> None:
        self.servers: list[ServerRecord] = []

    def begin(self, server: int, record: Path) -> ServerRecord:
        """Add the record of a server that starts without a state."""
        number = sum(record.server == server for record in self.servers)
        self.servers.append(ServerRecord(server, number, Follower(record)))
        return self.servers[-1]

    def of(self, server: int) -> ServerRecord:
        """Return the latest record of a server."""
        return next(record for record in reversed(self.servers) if record.server == server)

    def read(self) -> None:
        """Read the new facts of all servers that still have their disks."""
        for record in self.servers:
            if record.destroyed is None:
                record.poll()

    # --- Queries -----------------------------------------------------------------------------------------------------

    def synchronisations(self, servers: Collection[int], since: float, until: float = float("inf")) -> set[int]:
        """Return the synchronisations that these servers started between two times."""
        return {sync.bid for i in servers for _, sync in self.of(i).facts(SyncStarted, since, until)}

    def synchronised(self, servers: Collection[int], since: float) -> float | None:
        """Return the time of the first merge between these servers in a synchronisation begun after ``since``."""
        bids = self.synchronisations(servers, since)
        found = [
            at
            for i in servers
            for at, merge in self.of(i).facts(Merged, since)
            if merge.peer in servers and merge.bid in bids
        ]
        return min(found, default=None)

    def merged(self, server: int, peer: int, since: float, bids: Collection[int] | None = None) -> float | None:
        """Return the time at which a server first merged a peer's model after ``since``, in one of ``bids`` if set."""
        merges = self.of(server).facts(Merged, since)
        return next((at for at, m in merges if m.peer == peer and (bids is None or m.bid in bids)), None)

    def all_merged(self, servers: Collection[int], since: float) -> float | None:
        """Return the time at which all had merged each other's models of synchronisations after ``since``."""
        bids = self.synchronisations(servers, since)
        times = [self.merged(i, j, since, bids) for i in servers for j in servers if i != j]
        return None if None in times else max(at for at in times if at is not None)

    def gap(self, servers: Collection[int], since: float, until: float) -> float:
        """Return the longest time without a merge between these servers."""
        merges = [at for i in servers for at, m in self.of(i).facts(Merged, since, until) if m.peer in servers]
        return max(b - a for a, b in itertools.pairwise([since, *sorted(merges), until]))

    def updates(self, server: int, since: float, until: float = float("inf")) -> int:
        """Return the number of updates that a server applied between two times."""
        return sum(1 for _ in self.of(server).facts(UpdateApplied, since, until))

    def pause(self, clients: Collection[int], since: float, until: float) -> float:
        """Return the longest time for which no server applied an update of one of these clients."""
        times: dict[int, list[float]] = {k: [since] for k in clients}
        for record in self.servers:
            for at, update in record.facts(UpdateApplied, since, until):
                if update.client in times:
                    times[update.client].append(at)
        longest = 0.0
        for each in times.values():
            each = [*sorted(each), until]
            longest = max(longest, *(b - a for a, b in itertools.pairwise(each)))
        return longest

    def carried(self, source: int, target: int, thirds: Collection[int], since: float, until: float) -> int:
        """Return how often ``target`` merged a model of a third server that contained a new model of ``source``.

        A server sends its model of a synchronisation before it records any fact about it, so the model contains
        everything that the server merged in earlier synchronisations.
        """
        count = 0
        for third in thirds:
            news: set[int] = (
                set()
            )  # synchronisations in which the third one sent a model that contains a new one of the source
            seen: set[int] = set()
            fresh = False
            for _, fact in self.of(third).facts(Fact, since, until):
                if not isinstance(fact, SyncStarted | Merged):
                    continue
                if fact.bid not in seen:
                    seen.add(fact.bid)
                    if fresh:
                        news.add(fact.bid)
                        fresh = False
                if isinstance(fact, Merged) and fact.peer == source:
                    fresh = True
            count += sum(m.peer == third and m.bid in news for _, m in self.of(target).facts(Merged, since, until))
        return count
