"""The facts of a record in several files, where one would grow without end.

The first is ``facts.jsonl``. A record with a limit goes on in ``facts-START.jsonl``, where ``START`` is how many bytes
of facts had been written before it. A place in the record is such a number, whichever file it is in, and stays valid.
When there is too much, the oldest files but the first go. In their place stands one fact, :class:`FactsDropped`, which
says how much is missing. Files appear and disappear; none is ever renamed, so that whoever reads while this goes on
misses nothing but what is gone.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import NamedTuple

from spyker.records.files import FACTS
from spyker.records.lines import line, parse
from spyker.records.run_facts import FactsDropped, ServerResumed

LATER = re.compile(r"facts-(\d{15,})\.jsonl")
RESTART = f'"kind": "{ServerResumed.kind}"'.encode()
SHARE = 8  # of what a record may take, in one file
LARGEST = 16 << 20  # bytes of one file; one that goes is looked through first


class Segment(NamedTuple):
    """A file, and the place at which it begins."""

    start: int
    path: Path


def segments(folder: Path) -> list[Segment]:
    """The files that hold a record's facts, in their order."""
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    found = [Segment(int(match[1]), folder / name) for name in names if (match := LATER.fullmatch(name))]
    return [*([Segment(0, folder / FACTS)] if FACTS in names else []), *sorted(found)]


def end(folder: Path) -> int:
    """The place where the facts of a record end: how many bytes of them were ever written."""
    last = segments(folder)[-1]
    return last.start + last.path.stat().st_size


def path_of(folder: Path, start: int) -> Path:
    """The file of a record that begins at a place."""
    return folder / (FACTS if start == 0 else f"facts-{start:015}.jsonl")


def segment_limit(limit: int) -> int:
    """How long a file becomes in a record that may take so many bytes."""
    return max(1, min(limit // SHARE, LARGEST))


def place_of(folder: Path, offset: int) -> tuple[Segment, bool] | None:
    """The file that a place is in, and whether others follow it. Nothing if there is no record yet."""
    found = segments(folder)
    later = [segment for segment in found if segment.start > offset]
    here = found[: len(found) - len(later)]
    return (here[-1], bool(later)) if here else (later[0], len(later) > 1) if later else None


def following(folder: Path, start: int) -> int:
    """Where the file after the one that begins at a place begins; the same place, if there is none."""
    return next((segment.start for segment in segments(folder) if segment.start > start), start)


def is_gone(folder: Path, offset: int) -> bool:
    """Whether what stood at a place was dropped since."""
    place = place_of(folder, offset)
    return place is not None and offset > place[0].start and note_in(place[0].path) is not None


def make_room(folder: Path, server: int, limit: int) -> FactsDropped | None:
    """Remove the oldest files but the first and the one that is written to, until the rest keeps to the limit.

    Returns what went. A record's first file stays: it says what run this is, and how it began.
    """
    gone = None
    found = segments(folder)
    total = sum(size_of(segment.path) for segment in found)
    while total > limit and len(found) > 2:
        tomb = found[1].path
        before = note_in(tomb)
        oldest = found[1] if before is None else found[2]
        if oldest is found[-1]:
            break
        lost, t = look_through(oldest.path, server)
        with contextlib.suppress(OSError):  # on a full disk it is more important that something goes
            bury(tomb, line(t, lost if before is None else before.and_more(lost)))
        if oldest.path != tomb or note_in(tomb) is None:
            oldest.path.unlink(missing_ok=True)
        gone = lost if gone is None else gone.and_more(lost)
        total -= lost.bytes
        found = segments(folder)
    return gone


def size_of(path: Path) -> int:
    """Bytes in a file, which may be gone."""
    with contextlib.suppress(OSError):
        return path.stat().st_size
    return 0


def note_in(path: Path) -> FactsDropped | None:
    """The note in the place of files that are gone, if this file is one."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        text, more = file.readline(), file.read(1)
        stated = None if more else parse(text)
        if stated is not None and isinstance(stated.fact, FactsDropped):
            return stated.fact
    return None


def look_through(path: Path, server: int) -> tuple[FactsDropped, float]:
    """What will be missing without a file, and the time of its last fact."""
    content = path.read_bytes()
    lines = content.split(b"\n")
    restarts = [parse(text) for text in lines if RESTART in text]
    versions = [
        stated.fact.version for stated in restarts if stated is not None and isinstance(stated.fact, ServerResumed)
    ]
    last = next((stated for text in reversed(lines) if (stated := parse(text)) is not None), None)
    return FactsDropped(server, len(lines) - 1, len(content), min(versions, default=None)), last.t if last else 0.0


def bury(path: Path, note: str) -> None:
    """Put a note in the place of what is gone."""
    temporary = path.with_name(f".{path.name}")
    try:
        temporary.write_text(note, "utf-8", newline="\n")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
