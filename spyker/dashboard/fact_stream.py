"""The facts of one run in order, from one record or from those of the servers of a deployment, each with its own clock.

A place in such a reading is a byte for each record. A server writes an evaluation when its score is there, later than
the moment it counts for; it is told where it stands.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from spyker.records import Evaluated, Fact, Follower, RecordedFact, RunStarted

PATIENCE = 2.0  # real seconds that the others wait for a server that writes nothing


class TimedFact(NamedTuple):
    """A fact on the clock of the whole run, and, in a deployment, whose record it is in."""

    t: float
    fact: Fact
    queue: int | None
    server: int


@dataclass(slots=True)
class RecordPart:
    """One record, and how many seconds after the first of them it began."""

    folder: Path
    server: int = 0
    ahead: float = 0.0


class FactStream:
    """One record's facts, of which the next is looked at before it is taken."""

    def __init__(self, index: int, part: RecordPart, offset: int) -> None:
        self.index, self.part, self.offset = index, part, offset
        self._follower = Follower(part.folder, offset=offset)
        self._news: Iterator[RecordedFact[Fact]] = iter(())
        self.head: TimedFact | None = None
        self.order = -math.inf
        self.heard = time.monotonic()

    def look(self) -> bool:
        """Whether there is a next fact."""
        if self.head is not None:
            return True
        stated = next(self._news, None)
        if stated is None:
            self._news = self._follower.poll()
            stated = next(self._news, None)
        if stated is None:
            return False
        t = stated.t + self.part.ahead
        if not isinstance(stated.fact, Evaluated):
            self.order = max(self.order, t)
        self.head, self.heard = TimedFact(t, stated.fact, stated.queue, self.part.server), time.monotonic()
        return True

    def take(self) -> TimedFact:
        """The next fact."""
        told, self.head = self.head, None
        assert told is not None
        self.offset = self._follower.offset
        return told


class MergedFacts:
    """All parts of a run, from some place on."""

    def __init__(self, parts: Sequence[RecordPart], offsets: Sequence[int] | None = None) -> None:
        self._streams = [FactStream(i, part, offsets[i] if offsets else 0) for i, part in enumerate(parts)]

    @property
    def offsets(self) -> list[int]:
        """The place after everything that was told."""
        return [stream.offset for stream in self._streams]

    def facts(self, *, wait: bool) -> Iterator[TimedFact]:
        """What is there. With ``wait``, only as far as no record can have an earlier fact to come."""
        streams = self._streams
        while True:
            there = [stream for stream in streams if stream.look()]
            if not there:
                return
            if wait and len(there) < len(streams):
                silent = [stream for stream in streams if stream.head is None]
                if any(time.monotonic() - stream.heard < PATIENCE for stream in silent):
                    return
            yield min(there, key=lambda stream: (stream.order, stream.index)).take()


def parts_of(folders: Sequence[Path], starts: Sequence[RunStarted]) -> list[RecordPart]:
    """The records of one run, by server."""
    first = min((start.began for start in starts if start.began is not None), default=0.0)
    parts = [
        RecordPart(folder, start.server or 0, (start.began or first) - first)
        for folder, start in zip(folders, starts, strict=True)
    ]
    return sorted(parts, key=lambda part: part.server)
