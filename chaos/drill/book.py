"""What the records of all servers say, also of those whose disks are gone, on one clock.

A *life* is a server from its beginning with an empty state folder to the loss of that; a restart does not end it. All
servers run on one machine, so that the times of their records can be compared.
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


class Told(NamedTuple):
    """A fact, and when it happened, in unix time."""

    at: float
    fact: Fact


@dataclass
class Life:
    """One server, from its beginning to the loss of its disk."""

    server: int
    number: int
    """How many servers of this number were there before it."""
    follower: Follower
    told: list[Told] = field(default_factory=list)
    destroyed: float | None = None
    _began: float = 0.0

    def poll(self) -> None:
        """Read on."""
        for t, fact, _ in self.follower.poll():
            if isinstance(fact, RunStarted):
                self._began = fact.began or 0.0
            self.told.append(Told(self._began + t, fact))

    def facts(self, kind: type[F], since: float = 0.0, until: float = float("inf")) -> Iterator[tuple[float, F]]:
        """What was told of some kind between two times."""
        for at, fact in self.told[bisect.bisect_left(self.told, since, key=lambda told: told.at) :]:
            if at > until:
                return
            if isinstance(fact, kind):
                yield at, fact

    def held(self) -> list[tuple[float, UpdateApplied, int | None]]:
        """The updates that hold, each with the number that its client gave it, if that was written down.

        A client has one task at a time, so that an update and a report of it belong together, whichever comes first:
        where there are rounds, an update is written down at the end of its round. What a crash took back does not hold.
        """
        kept: list[tuple[float, UpdateApplied, int | None]] = []
        nameless: dict[int, int] = {}  # by client, where in the list an update stands whose number is not known yet
        steps: dict[int, int] = {}  # by client, a number whose update has yet to come
        for at, fact in self.told:
            if isinstance(fact, UpdateApplied):
                step = steps.pop(fact.client, None)
                if step is None:
                    nameless[fact.client] = len(kept)
                kept.append((at, fact, step))
            elif isinstance(fact, ClientReported):
                place = nameless.pop(fact.client, None)
                if place is None:
                    steps[fact.client] = int(fact.metrics[STEP])
                else:
                    kept[place] = (*kept[place][:2], int(fact.metrics[STEP]))
            elif isinstance(fact, ServerResumed):
                nameless.clear()
                steps.clear()
                while kept and kept[-1][1].version > fact.version:
                    kept.pop()
        return kept


class Book:
    """All lives."""

    def __init__(self) -> None:
        self.lives: list[Life] = []

    def begin(self, server: int, record: Path) -> Life:
        """A server begins with nothing."""
        number = sum(life.server == server for life in self.lives)
        self.lives.append(Life(server, number, Follower(record)))
        return self.lives[-1]

    def of(self, server: int) -> Life:
        """The present life of a server."""
        return next(life for life in reversed(self.lives) if life.server == server)

    def read(self) -> None:
        """Read on in all records that still grow."""
        for life in self.lives:
            if life.destroyed is None:
                life.poll()

    # --- Questions ---------------------------------------------------------------------------------------------------

    def synchronisations(self, servers: Collection[int], since: float, until: float = float("inf")) -> set[int]:
        """Those that some servers started."""
        return {sync.bid for i in servers for _, sync in self.of(i).facts(SyncStarted, since, until)}

    def synchronised(self, servers: Collection[int], since: float) -> float | None:
        """When two of these servers first merged in a synchronisation that one of them started after a time."""
        bids = self.synchronisations(servers, since)
        found = [
            at
            for i in servers
            for at, merge in self.of(i).facts(Merged, since)
            if merge.peer in servers and merge.bid in bids
        ]
        return min(found, default=None)

    def merged(self, server: int, peer: int, since: float, bids: Collection[int] | None = None) -> float | None:
        """When a server first merged another one's model after a time; of some synchronisations, if they are named."""
        merges = self.of(server).facts(Merged, since)
        return next((at for at, m in merges if m.peer == peer and (bids is None or m.bid in bids)), None)

    def all_merged(self, servers: Collection[int], since: float) -> float | None:
        """When each of some servers had merged each other's model, of synchronisations started after a time."""
        bids = self.synchronisations(servers, since)
        times = [self.merged(i, j, since, bids) for i in servers for j in servers if i != j]
        return None if None in times else max(at for at in times if at is not None)

    def gap(self, servers: Collection[int], since: float, until: float) -> float:
        """The longest time between two times in which no two of these servers merged."""
        merges = [at for i in servers for at, m in self.of(i).facts(Merged, since, until) if m.peer in servers]
        return max(b - a for a, b in itertools.pairwise([since, *sorted(merges), until]))

    def updates(self, server: int, since: float, until: float = float("inf")) -> int:
        """How many a server applied between two times."""
        return sum(1 for _ in self.of(server).facts(UpdateApplied, since, until))

    def pause(self, clients: Collection[int], since: float, until: float) -> float:
        """The longest time for which none of a client's updates was applied anywhere, of the worst of some clients."""
        times: dict[int, list[float]] = {k: [since] for k in clients}
        for life in self.lives:
            for at, update in life.facts(UpdateApplied, since, until):
                if update.client in times:
                    times[update.client].append(at)
        longest = 0.0
        for each in times.values():
            each = [*sorted(each), until]
            longest = max(longest, *(b - a for a, b in itertools.pairwise(each)))
        return longest

    def carried(self, source: int, target: int, thirds: Collection[int], since: float, until: float) -> int:
        """How many models of third servers with news of ``source`` in them ``target`` merged between two times.

        A server's model of a synchronisation was sent before it told anything else of that synchronisation; so what it
        merged in an earlier one is part of it.
        """
        count = 0
        for third in thirds:
            news: set[int] = set()  # synchronisations in which the third one sent a model with news
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
