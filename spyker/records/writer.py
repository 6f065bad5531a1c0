"""Writing of run records."""

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
    """Writes one run record. Facts are flushed at every evaluation; a kill loses only later facts.

    With ``at_once`` each fact is written immediately and, if the disk is full, completely or not at all. ``append``
    continues an existing record. The record of one ``server`` may have a ``limit`` in bytes, beyond which the oldest
    facts are deleted (:mod:`~spyker.records.segments`).
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
        self._length = self._facts.tell() if limit is not None else 0  # of the current file; only tracked with a limit

    def _open(self) -> IO[bytes]:
        path = path_of(self.folder, self._start)
        return path.open("ab", buffering=0) if self._at_once else path.open("ab", buffering=1 << 20)

    @property
    def size(self) -> int:
        """Bytes of all facts so far, including deleted ones."""
        return self._start + self._facts.tell()

    def write(self, t: float, fact: Fact, queue: int | None = None) -> FactsDropped | None:
        """Append a fact, and return the facts deleted for it, or ``None``."""
        text = line(t, fact, queue).encode()
        dropped = None
        if self._limit is not None:
            if self._length and self._length + len(text) > segment_limit(self._limit):
                dropped = self._turn_over()
            self._length += len(text)
        try:
            written = self._facts.write(text)
            while written < len(text):  # a nearly full disk may accept only a part
                written += self._facts.write(text[written:])
        except OSError:
            if self._at_once:
                self._take_back(len(text))
            raise
        if type(fact) in MILESTONES:
            self._facts.flush()
        return dropped

    def _take_back(self, length: int) -> None:
        """Truncate a partly written line."""
        if self._limit is not None:
            self._length -= length
        with contextlib.suppress(OSError):
            drop_torn_line(path_of(self.folder, self._start))

    def _turn_over(self) -> FactsDropped | None:
        """Continue in a new file, and delete old files beyond the limit."""
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
        """Close the facts and write the summary, if there is one."""
        self._facts.close()
        if summary is not None:
            text = json.dumps(jsonable(summary), indent=2, allow_nan=False)
            write_atomically(self.folder / SUMMARY, text + "\n")
