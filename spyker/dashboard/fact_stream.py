"""Ordered facts of a run, from one record or merged from the records of a deployment's servers.

A position in the merged stream is one byte offset per record. A server writes an evaluation when its score is known,
later than its time; evaluations keep their position in the file.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from spyker.records import Evaluated, Fact, Follower, RecordedFact, RunStarted

PATIENCE = 2.0  # real seconds to wait for a record without new facts


class TimedFact(NamedTuple):
    """A fact with its time on the run's common clock and the server whose record contains it."""

    t: float
    fact: Fact
    queue: int | None
    server: int


@dataclass(slots=True)
class RecordPart:
    """A record, and the seconds between the first record's start and its own."""

    folder: Path
    server: int = 0
    ahead: float = 0.0


class FactStream:
    """The facts of one record, with a lookahead of one."""

    def __init__(self, index: int, part: RecordPart, offset: int) -> None:
        self.index, self.part, self.offset = index, part, offset
        self._follower = Follower(part.folder, offset=offset)
        self._news: Iterator[RecordedFact[Fact]] = iter(())
        self.head: TimedFact | None = None
        self.order = -math.inf
        self.last_read = time.monotonic()

    def peek(self) -> bool:
        """Read the next fact into ``head``; return whether there is one."""
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
        self.head, self.last_read = TimedFact(t, stated.fact, stated.queue, self.part.server), time.monotonic()
        return True

    def take(self) -> TimedFact:
        """Return the next fact and remove it."""
        head, self.head = self.head, None
        assert head is not None
        self.offset = self._follower.offset
        return head


class MergedFacts:
    """The facts of all records of a run, from given offsets on."""

    def __init__(self, parts: Sequence[RecordPart], offsets: Sequence[int] | None = None) -> None:
        self._streams = [FactStream(i, part, offsets[i] if offsets else 0) for i, part in enumerate(parts)]

    @property
    def offsets(self) -> list[int]:
        """The offsets after all returned facts."""
        return [stream.offset for stream in self._streams]

    def facts(self, *, wait: bool) -> Iterator[TimedFact]:
        """Yield the available facts; with ``wait``, stop where another record may still get an earlier fact."""
        streams = self._streams
        while True:
            ready = [stream for stream in streams if stream.peek()]
            if not ready:
                return
            if wait and any(
                time.monotonic() - stream.last_read < PATIENCE for stream in streams if stream.head is None
            ):
                return
            yield min(ready, key=lambda stream: (stream.order, stream.index)).take()


def parts_of(folders: Sequence[Path], starts: Sequence[RunStarted]) -> list[RecordPart]:
    """Return the records of one run, ordered by server."""
    first = min((start.began for start in starts if start.began is not None), default=0.0)
    parts = [
        RecordPart(folder, start.server or 0, (start.began or first) - first)
        for folder, start in zip(folders, starts, strict=True)
    ]
    return sorted(parts, key=lambda part: part.server)
