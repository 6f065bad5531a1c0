"""A world from measured latencies: a table of pings between places becomes the regions and the matrix of a scenario.

A table is a CSV file with the columns ``from``, ``to`` and ``ms``, one ping a line, or a JSON file such as
``{"Paris": {"Paris": 1.8, "Sydney": [559.1, 558.7]}}``. Where there are several pings for a pair, their median counts.
A ping is a round trip; a message takes half of it. A pair that was measured in one direction alone is the same in both.
Lines of a CSV file that begin with # are not read.
"""

from __future__ import annotations

import csv
import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from spyker.errors import UsageError

COLUMNS = ("from", "to", "ms")
Ping = tuple[str, str, str, object]
"""Where it stands in the file, from where, to where, milliseconds."""


def read_pings(file: str | os.PathLike[str]) -> dict[str, Any]:
    """The keys ``regions`` and ``latency-ms`` of ``[world]``, from a table of round trips."""
    path = Path(file)
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise UsageError(str(path), f"cannot be read ({error.strerror})", "Name a CSV or JSON file") from None
    except UnicodeDecodeError:
        raise UsageError(str(path), "is not a text file in UTF-8", "Name a CSV or JSON file") from None
    pings = from_json(path, text) if path.suffix == ".json" else from_csv(path, text)
    trips: dict[tuple[str, str], list[float]] = {}
    for where, start, end, value in pings:
        trips.setdefault((start, end), []).append(milliseconds(value, where))
    if not trips:
        raise UsageError(str(path), "has no pings", "Write a line from,to,ms and below it one ping a line")
    regions = list(dict.fromkeys(place for pair in trips for place in pair))

    def one_way(start: str, end: str) -> float:
        measured = trips.get((start, end)) or trips.get((end, start))
        if measured is None:
            about = "the way between a client and its own server" if start == end else "in either direction"
            raise UsageError(str(path), f"has no ping from {start} to {end}", f"Add one: {about}")
        return round(median(measured) / 2, 6)

    return {"regions": regions, "latency-ms": [[one_way(start, end) for end in regions] for start in regions]}


def from_csv(path: Path, text: str) -> Iterator[Ping]:
    """The lines of a CSV file."""
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip() and line[0] != "#"]
    rows = csv.reader(line for _, line in lines)
    header = [name.strip().lower() for name in next(rows, [])]
    missing = [column for column in COLUMNS if column not in header]
    if missing:
        raise UsageError(str(path), f"has no column {missing[0]!r}", f"Begin it with a line {','.join(COLUMNS)}")
    for (number, _), row in zip(lines[1:], rows, strict=True):
        where = f"{path}, line {number}"
        if len(row) != len(header):
            raise UsageError(where, f"has {len(row)} entries", f"There are {len(header)} columns")
        cells = dict(zip(header, map(str.strip, row), strict=True))
        for column in ("from", "to"):
            if not cells[column]:
                raise UsageError(where, f"says nothing in the column {column!r}", "Name a place")
        yield where, cells["from"], cells["to"], cells["ms"]


def from_json(path: Path, text: str) -> Iterator[Ping]:
    """The entries of a JSON file."""
    try:
        table = json.loads(text)
    except ValueError as error:
        raise UsageError(str(path), f"is not valid JSON: {error}", "Mend it") from None
    if not isinstance(table, dict) or not all(isinstance(row, dict) for row in table.values()):
        raise UsageError(str(path), "is not a table of tables", 'Write {"Paris": {"Sydney": 559.1, …}, …}')
    for start, row in table.items():
        for end, values in row.items():
            for value in values if isinstance(values, list) else [values]:
                yield f"{path}, from {start} to {end}", start, end, value


def milliseconds(value: object, where: str) -> float:
    """A duration, or an error."""
    try:
        number = math.nan if isinstance(value, bool) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        number = math.nan
    if not (math.isfinite(number) and number >= 0):
        raise UsageError(where, f"is {value!r}", "Write milliseconds, such as 142.5")
    return number
