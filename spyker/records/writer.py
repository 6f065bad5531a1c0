"""Writing a run down as it goes on."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from spyker.protocol.facts import Fact
from spyker.records.files import SCENARIO, SUMMARY, check_new, drop_torn_line, write_atomically
from spyker.records.lines import jsonable, line
from spyker.records.run_facts import Evaluated, FactsDropped, RunStarted
from spyker.records.segments import make_room, path_of, segment_limit, segments

MILESTONES = frozenset((RunStarted, Evaluated))


class RecordWriter:
    """Writes one run. Facts reach the disk at every evaluation; a kill loses only what came after the last one.

    With ``at_once`` each fact is written when it happens: what outlives a kill is then all that happened, and of a fact
    that the disk does not take nothing is left. ``append`` goes on with a record that is there. That of one ``server``
    may have a ``limit`` in bytes, beyond which the oldest facts go (:mod:`~spyker.records.segments`).
    """

    def __init__(
        self,
        folder: Path,
        scenario: str,
        *,
        at_once: bool = False,
        append: bool = False,
        server: int = 0,
        limit: int | None = None,
    ) -> None:
        self.folder, self._at_once, self._server, self._limit = folder, at_once, server, limit
        found = segments(folder) if append else []
        if found:
            drop_torn_line(found[-1].path)
        else:
            check_new(folder, overwrite=False)
            folder.mkdir(parents=True, exist_ok=True)
            write_atomically(folder / SCENARIO, scenario)
        self._start = found[-1].start if found else 0
        self._facts = self._open()
        self._length = self._facts.tell() if limit is not None else 0  # of the present file; kept only where it counts

    def _open(self) -> IO[bytes]:
        path = path_of(self.folder, self._start)
        return path.open("ab", buffering=0) if self._at_once else path.open("ab", buffering=1 << 20)

    @property
    def size(self) -> int:
        """Bytes of all facts up to now, also of those that were dropped."""
        return self._start + self._facts.tell()

    def write(self, t: float, fact: Fact, queue: int | None = None) -> FactsDropped | None:
        """Append a fact, and return what had to go for it, if anything."""
        text = line(t, fact, queue).encode()
        dropped = None
        if self._limit is not None:
            if self._length and self._length + len(text) > segment_limit(self._limit):
                dropped = self._turn_over()
            self._length += len(text)
        try:
            written = self._facts.write(text)
            while written < len(text):  # a disk that is nearly full may take a part of it
                written += self._facts.write(text[written:])
        except OSError:
            if self._at_once:
                self._take_back(len(text))
            raise
        if type(fact) in MILESTONES:
            self._facts.flush()
        return dropped

    def _take_back(self, length: int) -> None:
        """Cut off what was written of a line."""
        if self._limit is not None:
            self._length -= length
        with contextlib.suppress(OSError):
            drop_torn_line(path_of(self.folder, self._start))

    def _turn_over(self) -> FactsDropped | None:
        """Go on in another file, and see that all of them together are not too much."""
        assert self._limit is not None
        before, began = self._facts, self._start
        self._start = self.size
        try:
            self._facts = self._open()
        except OSError:
            self._start = began
            raise
        before.close()
        self._length = 0
        return make_room(self.folder, self._server, self._limit - segment_limit(self._limit))

    def close(self, summary: Mapping[str, Any] | None) -> None:
        """Finish the stream of facts and, if the run got that far, write the summary."""
        self._facts.close()
        if summary is not None:
            text = json.dumps(jsonable(summary), indent=2, allow_nan=False)
            write_atomically(self.folder / SUMMARY, text + "\n")
