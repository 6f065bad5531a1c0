"""Writing a run down as it goes on."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spyker.protocol.facts import Fact
from spyker.records.facts import Evaluated, RunStarted
from spyker.records.files import FACTS, SCENARIO, SUMMARY, check_new, drop_torn_line, write_atomically
from spyker.records.lines import jsonable, line

MILESTONES = frozenset((RunStarted, Evaluated))


class RecordWriter:
    """Writes one run. Facts reach the disk at every evaluation; a kill loses only what came after the last one.

    With ``at_once`` each fact is written when it happens: what outlives a kill is then all that happened. ``append``
    goes on with a record that is there.
    """

    def __init__(self, folder: Path, scenario: str, *, at_once: bool = False, append: bool = False) -> None:
        facts = folder / FACTS
        if append and facts.exists():
            drop_torn_line(facts)
        else:
            check_new(folder, overwrite=False)
            folder.mkdir(parents=True, exist_ok=True)
            write_atomically(folder / SCENARIO, scenario)
        self.folder = folder
        self._facts = facts.open("ab", buffering=0) if at_once else facts.open("ab", buffering=1 << 20)

    @property
    def size(self) -> int:
        """Bytes of all facts up to now."""
        return self._facts.tell()

    def write(self, t: float, fact: Fact, queue: int | None = None) -> None:
        """Append a fact."""
        text = line(t, fact, queue).encode()
        written = self._facts.write(text)
        while written < len(text):  # a disk that is nearly full may take a part of it
            written += self._facts.write(text[written:])
        if type(fact) in MILESTONES:
            self._facts.flush()

    def flush(self) -> int:
        """Hand everything over to the disk, and return how many bytes of facts there are."""
        self._facts.flush()
        os.fsync(self._facts.fileno())
        return self.size

    def close(self, summary: Mapping[str, Any] | None) -> None:
        """Finish the stream of facts and, if the run got that far, write the summary."""
        self._facts.close()
        if summary is not None:
            text = json.dumps(jsonable(summary), indent=2, allow_nan=False)
            write_atomically(self.folder / SUMMARY, text + "\n")
