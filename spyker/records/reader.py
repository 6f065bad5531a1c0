"""Reading a run back, also while it goes on."""

from __future__ import annotations

import functools
import json
import os
import time
import tomllib
from collections.abc import Callable, Iterator
from io import FileIO
from pathlib import Path
from typing import Any, TypeVar, overload

from spyker.errors import RecordError
from spyker.protocol.facts import Fact, UpdateApplied
from spyker.records.files import BLOCK, FACTS, SCENARIO, SUMMARY, backwards, is_record
from spyker.records.lines import RecordedFact, parse
from spyker.records.run_facts import FORMAT, FactsDropped, RunStarted, ServerResumed
from spyker.records.segments import following, place_of, segments

F = TypeVar("F", bound=Fact)
LISTED = 12  # runs that an error names


class Follower:
    """Reads a record's facts as they are appended: :meth:`poll` yields what came since the last time.

    It does not wait, needs no more memory than a chunk of the file, and takes whole lines only: what a kill tore off
    is left for the server that goes on to cut away.
    """

    def __init__(self, folder: Path, *kinds: type[Fact], offset: int = 0) -> None:
        """``offset`` is where an earlier follower of the same record had come to; all facts, if no kinds are named."""
        self.folder, self.offset = folder, offset
        self._kinds = kinds or (Fact,)
        names = [kind.kind for kind in kinds if isinstance(getattr(kind, "kind", None), str)]
        # Most lines need not be parsed to see that they are of another kind.
        self._marks = [f'"kind": "{name}"'.encode() for name in names] if len(names) == len(kinds) else []

    def poll(self) -> Iterator[RecordedFact[Fact]]:
        """What was written since the last time, and nothing if there is no file yet."""
        while (place := place_of(self.folder, self.offset)) is not None:
            segment, complete = place
            self.offset = max(self.offset, segment.start)  # what was before may be gone
            try:
                with segment.path.open("rb", buffering=0) as file:
                    yield from self._read(file, segment.start)
            except FileNotFoundError:
                continue  # dropped in the meantime
            except OSError as error:
                raise unreadable(segment.path, error) from None
            if not complete:
                return
            self.offset = max(self.offset, following(self.folder, segment.start))

    def _read(self, file: FileIO, start: int) -> Iterator[RecordedFact[Fact]]:
        """The rest of one file, which begins at a place of the record."""
        size = BLOCK
        while True:
            # Each line comes from one read, so that it is never half of one that was cut off since.
            chunk = os.pread(file.fileno(), size, self.offset - start)
            lines = chunk.split(b"\n")[:-1]
            for text in lines:
                self.offset += len(text) + 1
                if not self._marks or any(mark in text for mark in self._marks):
                    stated = parse(text)
                    if stated is not None and isinstance(stated.fact, self._kinds):
                        yield stated
            if len(chunk) < size:
                return
            size = BLOCK if lines else 2 * size


@overload
def read(folder: Path) -> Iterator[RecordedFact[Fact]]: ...


@overload
def read(folder: Path, *kinds: type[F]) -> Iterator[RecordedFact[F]]: ...


def read(folder: Path, *kinds: type[Any]) -> Iterator[RecordedFact[Any]]:
    """The facts of a record in their order, all or those of some kinds. Damaged lines are left out."""
    return Follower(folder, *kinds).poll()


@overload
def follow(folder: Path, *, stop: Callable[[], bool] = ..., pause: float = ...) -> Iterator[RecordedFact[Fact]]: ...


@overload
def follow(
    folder: Path, *kinds: type[F], stop: Callable[[], bool] = ..., pause: float = ...
) -> Iterator[RecordedFact[F]]: ...


def follow(
    folder: Path, *kinds: type[Any], stop: Callable[[], bool] = lambda: False, pause: float = 0.2
) -> Iterator[RecordedFact[Any]]:
    """The facts of a run that may go on: those that are there, then each as it is written.

    Ends when the run has its summary, or ``stop`` says so, and everything up to then was told. Looks again every
    ``pause`` seconds; who watches several runs, or must not sleep, polls a :class:`Follower` for each.
    """
    follower = Follower(folder, *kinds)
    while True:
        ended = stop() or (folder / SUMMARY).exists()
        yield from follower.poll()
        if ended:
            return
        time.sleep(pause)


def read_back(folder: Path) -> Iterator[RecordedFact[Fact]]:
    """The facts of a record from the last to the first, read as far as they are asked for: it may be a long one."""
    for _, path in reversed(segments(folder)):
        try:
            with path.open("rb") as file:
                for text in backwards(file):
                    stated = parse(text)
                    if stated is not None:
                        yield stated
        except FileNotFoundError:
            continue  # dropped in the meantime
        except OSError as error:
            raise unreadable(path, error) from None


def first_fact(folder: Path) -> RunStarted | None:
    """What run a record is of; nothing if it has no facts yet."""
    stated = next(read(folder), None)
    if stated is None:
        return None
    if isinstance(stated.fact, RunStarted) and stated.fact.format == FORMAT:
        return stated.fact
    number = getattr(stated.fact, "format", None) or getattr(stated.fact, "fields", {}).get("format")
    found = f"format {number}" if number else "an older format, without a first fact that says what run it is"
    raise RecordError(
        f"{folder / FACTS} has {found}; this version of Spyker reads format {FORMAT}. Read it with the version that "
        f"wrote it, or run {folder / SCENARIO} again, into another folder"
    )


def unreadable(path: Path, error: Exception) -> RecordError:
    """A file of a record that cannot be read."""
    problem = error.strerror if isinstance(error, OSError) else error
    return RecordError(f"{path} cannot be read ({problem}). Restore it, or make the run again")


class RunRecord:
    """A run record, read back. A run that was killed has facts but no summary; damaged lines are ignored."""

    def __init__(self, folder: Path) -> None:
        if not is_record(folder):
            raise RecordError(f"{folder} is not a run record (it has no {SCENARIO}). Name a folder made by --out")
        self.folder = folder
        self.scenario: dict[str, Any] = self._load(SCENARIO, tomllib.loads) or {}
        self.summary: dict[str, Any] | None = self._load(SUMMARY, json.loads)

    def _load(self, name: str, loads: Callable[[str], Any]) -> dict[str, Any] | None:
        path = self.folder / name
        try:
            found = loads(path.read_text("utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise unreadable(path, error) from None
        if not isinstance(found, dict):
            raise unreadable(path, ValueError("it is not a table"))
        return found

    @functools.cached_property
    def start(self) -> RunStarted:
        """What run this is."""
        found = first_fact(self.folder)
        if found is None:
            raise RecordError(f"{self.folder} has no facts yet. Let it run a little longer")
        return found

    @overload
    def facts(self) -> Iterator[RecordedFact[Fact]]: ...

    @overload
    def facts(self, *kinds: type[F]) -> Iterator[RecordedFact[F]]: ...

    def facts(self, *kinds: type[Any]) -> Iterator[RecordedFact[Any]]:
        """All facts in their order, or those of some kinds."""
        return read(self.folder, *kinds)

    def updates(self) -> Iterator[RecordedFact[UpdateApplied]]:
        """The updates that hold: a server that went on from a checkpoint made void what it had applied after it."""
        restarts: dict[int, list[int]] = {}
        for _, restart, _ in self.facts(ServerResumed, FactsDropped):
            if isinstance(restart, ServerResumed | FactsDropped) and restart.version is not None:
                restarts.setdefault(restart.server, []).append(restart.version)
        for versions in restarts.values():  # the lowest that is still to come
            for i in reversed(range(len(versions) - 1)):
                versions[i] = min(versions[i], versions[i + 1])
        for t, fact, queue in self.facts(UpdateApplied, ServerResumed, FactsDropped):
            if isinstance(fact, UpdateApplied):
                ahead = restarts.get(fact.server)
                if not ahead or fact.version <= ahead[0]:
                    yield RecordedFact(t, fact, queue)
            elif (
                isinstance(fact, ServerResumed | FactsDropped)
                and fact.version is not None
                and restarts.get(fact.server)
            ):
                restarts[fact.server].pop(0)


def find_runs(folder: Path) -> list[RunRecord]:
    """The run in this folder, or else the runs in the folders directly below it, by name, or in its ``runs``."""
    if is_record(folder):
        return [RunRecord(folder)]
    children = records_below(folder)
    if not children:
        raise RecordError(f"{folder} {no_record(folder)}")
    return [RunRecord(child) for child in children]


def records_below(folder: Path) -> list[Path]:
    """The records in the folders directly below this one, by name, or in its ``runs``."""
    return sorted(p for p in (*folder.glob("[!.]*"), *folder.glob("runs/[!.]*")) if is_record(p))


def no_record(folder: Path) -> str:
    """What is to be said of a folder without a record: of one that does not exist, which others stand in its place."""
    if folder.exists():
        return "holds no run record. Name a folder made by --out"
    beside = [path.relative_to(folder.parent).as_posix() for path in records_below(folder.parent)]
    if not beside:
        return "does not exist. Name a folder made by --out"
    beside.sort(key=lambda name: not name.startswith(folder.name))  # those that may have been meant come first
    more = f" and {len(beside) - LISTED} more" if len(beside) > LISTED else ""
    return f"does not exist. The runs in {folder.parent} are {', '.join(beside[:LISTED])}{more}"
