"""Reading of run records, also during the run."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Iterator
from io import FileIO
from pathlib import Path
from typing import Any, TypeVar, overload

from spyker.algorithms.builtin import ALGORITHMS
from spyker.config.suggest import listed
from spyker.errors import RecordError
from spyker.protocol.facts import Fact, UpdateApplied
from spyker.records.files import BLOCK, FACTS, SCENARIO, SUMMARY, backwards, check_line, is_record, section
from spyker.records.lines import RecordedFact, parse
from spyker.records.run_facts import FORMAT, FactsDropped, RunStarted, ServerResumed
from spyker.records.segments import following, place_of, segments
from spyker.untrusted_files import open_regular, read_json, read_toml

F = TypeVar("F", bound=Fact)
LISTED = 12  # maximum number of runs in an error message


class Follower:
    """Reads a record's facts as they are appended: :meth:`poll` yields the facts since the last call.

    It never waits, buffers one chunk of the file, and reads complete lines only; a resumed server truncates a torn
    line.
    """

    def __init__(self, folder: Path, *kinds: type[Fact], offset: int = 0) -> None:
        """Start at ``offset`` of an earlier follower; without ``kinds``, read all facts."""
        self.folder, self.offset = folder, offset
        self._kinds = kinds or (Fact,)
        names = [kind.kind for kind in kinds if isinstance(getattr(kind, "kind", None), str)]
        # Most lines of other kinds are skipped without parsing.
        self._marks = [f'"kind": "{name}"'.encode() for name in names] if len(names) == len(kinds) else []

    def poll(self) -> Iterator[RecordedFact[Fact]]:
        """Yield the facts since the last call; none if there is no file yet."""
        while (place := place_of(self.folder, self.offset)) is not None:
            segment, complete = place
            self.offset = max(self.offset, segment.start)  # earlier segments may have been deleted
            try:
                with open_regular(segment.path) as file:
                    yield from self._read(file, segment.start)
            except FileNotFoundError:
                continue  # deleted in the meantime
            except OSError as error:
                raise unreadable(segment.path, error) from None
            if not complete:
                return
            self.offset = max(self.offset, following(self.folder, segment.start))

    def _read(self, file: FileIO, start: int) -> Iterator[RecordedFact[Fact]]:
        """Yield the rest of one segment, which starts at offset ``start``."""
        size = BLOCK
        while True:
            # Each line comes from a single read, so that truncation cannot mix two lines.
            chunk = os.pread(file.fileno(), size, self.offset - start)
            lines = chunk.split(b"\n")[:-1]
            for text in lines:
                self.offset += len(text) + 1
                if not self._marks or any(mark in text for mark in self._marks):
                    recorded = parse(text)
                    if recorded is not None and isinstance(recorded.fact, self._kinds):
                        yield recorded
            if len(chunk) < size:
                return
            size = BLOCK if lines else 2 * size
            check_line(size // 2)


@overload
def read(folder: Path) -> Iterator[RecordedFact[Fact]]: ...


@overload
def read(folder: Path, *kinds: type[F]) -> Iterator[RecordedFact[F]]: ...


def read(folder: Path, *kinds: type[Any]) -> Iterator[RecordedFact[Any]]:
    """Yield the facts of a record in order.

    Args:
        folder: the record.
        kinds: fact classes to include; default: all.

    Yields:
        Facts with their times. Damaged lines are skipped.

    """
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
    """Yield the facts of a run, including those that are written during the iteration.

    It ends when the run has a summary or ``stop`` returns true, after all facts up to then. To read several runs, or
    without sleeping, use a :class:`Follower` for each.
    """
    follower = Follower(folder, *kinds)
    while True:
        ended = stop() or (folder / SUMMARY).exists()
        yield from follower.poll()
        if ended:
            return
        time.sleep(pause)


def read_back(folder: Path) -> Iterator[RecordedFact[Fact]]:
    """Yield the facts of a record from the last to the first, reading only as much as needed."""
    for _, path in reversed(segments(folder)):
        try:
            with open_regular(path) as file:
                for text in backwards(file):
                    recorded = parse(text)
                    if recorded is not None:
                        yield recorded
        except FileNotFoundError:
            continue  # deleted in the meantime
        except OSError as error:
            raise unreadable(path, error) from None


def first_fact(folder: Path) -> RunStarted | None:
    """What run a record is of; nothing if it has no facts yet."""
    recorded = next(read(folder), None)
    if recorded is None:
        return None
    if isinstance(recorded.fact, RunStarted) and recorded.fact.format == FORMAT:
        if problem := recorded.fact.problem():
            raise unreadable(folder / FACTS, ValueError(problem))
        return recorded.fact
    number = getattr(recorded.fact, "format", None) or getattr(recorded.fact, "fields", {}).get("format")
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
        self.scenario: dict[str, Any] = self._load(SCENARIO, read_toml) or {}
        self.summary: dict[str, Any] | None = self._load(SUMMARY, read_json)

    def _load(self, name: str, load: Callable[[Path], Any]) -> dict[str, Any] | None:
        path = self.folder / name
        try:
            found = load(path)
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

    @property
    def evaluated_by(self) -> str:
        """``servers``, ``clients`` or ``both``: the parties that evaluated."""
        return str(section(self.scenario, "evaluation").get("by", "servers"))

    @overload
    def facts(self) -> Iterator[RecordedFact[Fact]]: ...

    @overload
    def facts(self, *kinds: type[F]) -> Iterator[RecordedFact[F]]: ...

    def facts(self, *kinds: type[Any]) -> Iterator[RecordedFact[Any]]:
        """Return all facts, or those of some kinds, in order."""
        return read(self.folder, *kinds)

    def updates(self) -> Iterator[RecordedFact[UpdateApplied]]:
        """Yield the valid updates, without those that a server lost when it resumed from a checkpoint."""
        restarts: dict[int, list[int]] = {}
        for _, restart, _ in self.facts(ServerResumed, FactsDropped):
            if isinstance(restart, ServerResumed | FactsDropped) and restart.version is not None:
                restarts.setdefault(restart.server, []).append(restart.version)
        for versions in restarts.values():  # the lowest version of all later restarts
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
    """Return the run in this folder; if it is none, the runs in its subfolders and its folder ``runs``, by name."""
    if is_record(folder):
        return [RunRecord(folder)]
    children = records_below(folder)
    if not children:
        raise RecordError(f"{folder} {no_record(folder)}")
    return [RunRecord(child) for child in children]


def records_below(folder: Path) -> list[Path]:
    """Return the records in the subfolders of this folder and of its folder ``runs``, sorted by :func:`by_name`."""
    return sorted((p for p in (*folder.glob("[!.]*"), *folder.glob("runs/[!.]*")) if is_record(p)), key=by_name)


def by_name(folder: Path) -> tuple[int, Path]:
    """Return a sort key: the runs of a comparison in the order of ``spyker compare``, all others by name."""
    algorithm = folder.name.partition("-seed-")[0]
    return ([*ALGORITHMS, algorithm].index(algorithm), folder)


def no_record(folder: Path) -> str:
    """Return the problem with a folder without a record, and a remedy that may name runs beside it."""
    if folder.exists():
        return "holds no run record. Name a folder made by --out"
    siblings = [path.relative_to(folder.parent).as_posix() for path in records_below(folder.parent)]
    if not siblings:
        return "does not exist. Name a folder made by --out"
    siblings.sort(key=lambda name: not name.startswith(folder.name))  # the most similar names first
    return f"does not exist. The runs in {folder.parent} are {listed(siblings, LISTED)}"
