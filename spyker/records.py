"""The one format in which a run is written down and read back.

A run record is a folder: ``scenario.toml`` (everything resolved), ``facts.jsonl`` (one fact a line, in the order of
time, appended as the run goes on) and ``summary.json`` (totals, written last). Whoever wants a table, a plot or a page
reads these; nobody looks into a running world.
"""

from __future__ import annotations

import dataclasses
import json
import operator
import os
import shutil
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, TypeAlias

from spyker.protocol.facts import Fact as ProtocolFact

SCENARIO, FACTS, SUMMARY = "scenario.toml", "facts.jsonl", "summary.json"
BLOCK = 1 << 16  # bytes of a file that are read at once from its end


@dataclass(frozen=True, slots=True)
class Evaluated:
    """The servers' models were judged. ``averaged`` is the score of the mean of their weights."""

    kind: ClassVar[str] = "evaluation"
    updates: int
    bytes: int
    mean: float
    worst: float
    best: float
    averaged: float
    servers: list[float]


@dataclass(frozen=True, slots=True)
class Resumed:
    """A server process went on from a checkpoint: ``lost`` updates after ``version`` are gone, and those facts void."""

    kind: ClassVar[str] = "resumed"
    server: int
    version: int
    lost: int


Fact: TypeAlias = ProtocolFact | Evaluated | Resumed


class RecordError(Exception):
    """A record that cannot be written or read; says which folder and what to do."""


def _template(kind: type[Fact]) -> tuple[str, Callable[[Fact], Any]]:
    """How a fact is written, and what gets the values for it, all at once."""
    fields = [f.name for f in dataclasses.fields(kind)]
    # Fields are numbers and lists of numbers, and their repr is JSON.
    text = '{"t": %r, "kind": "%s", ' + ", ".join(f'"{name}": %r' for name in fields) + "}\n"
    return text, operator.attrgetter("kind", *fields)


_TEMPLATES = {kind: _template(kind) for kind in Fact.__args__}


def line(t: float, fact: Fact, queue: int | None = None) -> str:
    """A fact as it stands in the file. Times are rounded to nanoseconds."""
    template, values = _TEMPLATES[type(fact)]
    text = template % (round(t, 9), *values(fact))
    return text if queue is None else f'{text[:-2]}, "queue": {queue}}}\n'


def write_atomically(path: Path, text: str) -> None:
    """Write a file such that a kill at any moment leaves the old one or the new one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def is_record(folder: Path) -> bool:
    """Whether a folder holds a run, finished or not."""
    return (folder / SCENARIO).is_file()


def check_new(folder: Path, *, overwrite: bool) -> None:
    """Refuse to write where something stands already, unless it is our own and may go."""
    if folder.exists() and not folder.is_dir():
        raise RecordError(f"{folder} is a file. Choose another --out")
    if not folder.exists() or not any(folder.iterdir()):
        return
    if not overwrite:
        raise RecordError(f"{folder} exists already. Choose another --out, or add --overwrite to replace it")
    if not is_record(folder) and not any(is_record(child) for child in folder.iterdir()):
        raise RecordError(f"{folder} is not a run record, so --overwrite leaves it alone. Choose another --out")


def clear(folder: Path, *, overwrite: bool) -> None:
    """Make room for a record, if :func:`check_new` allows it."""
    check_new(folder, overwrite=overwrite)
    if folder.exists():
        shutil.rmtree(folder)


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

    def write(self, t: float, fact: Fact, queue: int | None = None) -> None:
        """Append a fact."""
        self._facts.write(line(t, fact, queue).encode())
        if type(fact) is Evaluated:
            self._facts.flush()

    def close(self, summary: Mapping[str, Any] | None) -> None:
        """Finish the stream of facts and, if the run got that far, write the summary."""
        self._facts.close()
        if summary is not None:
            write_atomically(self.folder / SUMMARY, json.dumps(summary, indent=2, allow_nan=False) + "\n")


def drop_torn_line(facts: Path) -> None:
    """Cut off what a kill left of a last line."""
    with facts.open("r+b") as file:
        torn = next(backwards(file))
        file.truncate(file.seek(0, os.SEEK_END) - len(torn))


def backwards(file: BinaryIO) -> Iterator[bytes]:
    """The lines of a file from the end, of which no more is read than asked for. The first has no newline behind it."""
    start, rest = file.seek(0, os.SEEK_END), b""
    while start:
        end, start = start, max(0, start - BLOCK)
        file.seek(start)
        rest, *lines = (file.read(end - start) + rest).split(b"\n")
        yield from reversed(lines)
    yield rest


class Run:
    """A run record, read back. A run that was killed has facts but no summary; damaged lines are ignored."""

    def __init__(self, folder: Path) -> None:
        if not is_record(folder):
            raise RecordError(f"{folder} is not a run record (it has no {SCENARIO}). Name a folder made by --out")
        self.folder = folder
        self.scenario = tomllib.loads((folder / SCENARIO).read_text(encoding="utf-8"))
        summary = folder / SUMMARY
        self.summary: dict[str, Any] | None = json.loads(summary.read_text("utf-8")) if summary.exists() else None

    @property
    def algorithm(self) -> str:
        """The algorithm's name in the scenario."""
        return str(self.scenario["algorithm"])

    def facts(self, kind: str | None = None) -> Iterator[dict[str, Any]]:
        """All facts in their order, or those of one kind."""
        mark = f'"kind": "{kind}"' if kind else ""
        path = self.folder / FACTS
        if not path.exists():
            return
        with path.open(encoding="utf-8", errors="replace") as file:
            for text in file:
                if mark in text and text.endswith("}\n"):
                    fact = parse(text)
                    if fact is not None:
                        yield fact

    def last_fact(self, *kinds: str) -> dict[str, Any] | None:
        """The last fact of these kinds, found from the end: a record may have grown for months."""
        path = self.folder / FACTS
        if not path.exists():
            return None
        with path.open("rb") as file:
            for text in backwards(file):
                fact = parse(text)
                if fact is not None and fact.get("kind") in kinds:
                    return fact
        return None


def parse(text: str | bytes) -> dict[str, Any] | None:
    """A line of the facts; nothing if it is damaged, which says nothing against the others."""
    try:
        fact = json.loads(text)
    except ValueError:
        return None
    return fact if isinstance(fact, dict) else None


def find_runs(folder: Path) -> list[Run]:
    """The run in this folder, or else the runs in the folders directly below it, by name."""
    if is_record(folder):
        return [Run(folder)]
    children = sorted(p for p in folder.iterdir() if is_record(p)) if folder.is_dir() else []
    if not children:
        raise RecordError(f"{folder} holds no run record. Name a folder made by --out")
    return [Run(child) for child in children]
