"""Rotation of a record's facts over several files.

The first file is ``facts.jsonl``. A record with a size limit continues in ``facts-START.jsonl``, where ``START`` is the
number of bytes of facts before it. Such byte offsets identify positions in the record and stay valid. When the limit is
exceeded, the oldest files except the first are replaced by one fact, :class:`FactsDropped`. Files are created and
deleted but never renamed, so that concurrent readers miss only deleted facts.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import NamedTuple

from spyker.records.files import BLOCK, FACTS
from spyker.records.lines import line, parse
from spyker.records.run_facts import FactsDropped, ServerResumed
from spyker.untrusted_files import open_regular

LATER = re.compile(r"facts-(\d{15,})\.jsonl")
RESTART = f'"kind": "{ServerResumed.kind}"'.encode()
SHARE = 8  # maximum fraction of the limit in one file: 1/SHARE
LARGEST = 16 << 20  # maximum bytes of a file; files are read before they are deleted


class Segment(NamedTuple):
    """A file and the offset at which it starts."""

    start: int
    path: Path


def segments(folder: Path) -> list[Segment]:
    """Return the files of a record's facts, in order."""
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    found = [Segment(int(match[1]), folder / name) for name in names if (match := LATER.fullmatch(name))]
    return [*([Segment(0, folder / FACTS)] if FACTS in names else []), *sorted(found)]


def end(folder: Path) -> int:
    """Return the offset of the end: the number of bytes ever written."""
    last = segments(folder)[-1]
    return last.start + last.path.stat().st_size


def path_of(folder: Path, start: int) -> Path:
    """Return the path of the file that starts at an offset."""
    return folder / (FACTS if start == 0 else f"facts-{start:015}.jsonl")


def segment_limit(limit: int) -> int:
    """Return the maximum size of a file for a record's limit."""
    return max(1, min(limit // SHARE, LARGEST))


def place_of(folder: Path, offset: int) -> tuple[Segment, bool] | None:
    """Return the file that contains an offset, and whether others follow; ``None`` if there is no record."""
    found = segments(folder)
    later = [segment for segment in found if segment.start > offset]
    here = found[: len(found) - len(later)]
    return (here[-1], bool(later)) if here else (later[0], len(later) > 1) if later else None


def following(folder: Path, start: int) -> int:
    """Return the start of the next file, or ``start`` if this file is the last."""
    return next((segment.start for segment in segments(folder) if segment.start > start), start)


def is_gone(folder: Path, offset: int) -> bool:
    """Return whether the facts at an offset were deleted."""
    place = place_of(folder, offset)
    return place is not None and offset > place[0].start and note_in(place[0].path) is not None


def make_room(folder: Path, server: int, limit: int) -> FactsDropped | None:
    """Delete the oldest files, except the first and the current one, until the record is within its limit.

    Returns the deleted facts. The first file stays: it describes the run and its start.
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
        with contextlib.suppress(OSError):  # on a full disk deleting is more important than the note
            bury(tomb, line(t, lost if before is None else before.and_more(lost)))
        if oldest.path != tomb or note_in(tomb) is None:
            oldest.path.unlink(missing_ok=True)
        gone = lost if gone is None else gone.and_more(lost)
        total -= lost.bytes
        found = segments(folder)
    return gone


def size_of(path: Path) -> int:
    """Return the size of a file; 0 if it was deleted."""
    with contextlib.suppress(OSError):
        return path.stat().st_size
    return 0


def note_in(path: Path) -> FactsDropped | None:
    """Return the ``FactsDropped`` of a replaced file, or ``None``."""
    with contextlib.suppress(OSError), open_regular(path) as file:
        text, more = file.readline(BLOCK), file.read(1)
        recorded = None if more else parse(text)
        if recorded is not None and isinstance(recorded.fact, FactsDropped):
            return recorded.fact
    return None


def look_through(path: Path, server: int) -> tuple[FactsDropped, float]:
    """Return what deleting a file would lose, and the time of its last fact."""
    content = path.read_bytes()
    lines = content.split(b"\n")
    restarts = [parse(text) for text in lines if RESTART in text]
    versions = [
        recorded.fact.version
        for recorded in restarts
        if recorded is not None and isinstance(recorded.fact, ServerResumed)
    ]
    last = next((recorded for text in reversed(lines) if (recorded := parse(text)) is not None), None)
    return FactsDropped(server, len(lines) - 1, len(content), min(versions, default=None)), last.t if last else 0.0


def bury(path: Path, note: str) -> None:
    """Replace a file by a note."""
    temporary = path.with_name(f".{path.name}")
    try:
        temporary.write_text(note, "utf-8", newline="\n")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
