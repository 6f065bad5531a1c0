"""Import of measured latencies: regions and latency matrix of a scenario from a table of pings.

The table is a CSV file with the columns ``from``, ``to`` and ``ms``, one ping per line, or a JSON file such as
``{"Paris": {"Paris": 1.8, "Sydney": [559.1, 558.7]}}``. Several pings of a pair are reduced to their median. A ping is
a round trip; the one-way latency is half of it. A pair measured in one direction only is symmetric. Lines of a CSV file
that start with # are comments.
"""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from spyker.errors import UsageError
from spyker.untrusted_files import parse_json, read_text

COLUMNS = ("from", "to", "ms")
Ping = tuple[str, str, str, object]
"""Position in the file, source, destination, milliseconds."""


def read_pings(file: str | os.PathLike[str]) -> dict[str, Any]:
    """Read the keys ``regions`` and ``latency-ms`` of ``[world]`` from a table of pings.

    Args:
        file: a CSV or JSON file.

    Returns:
        The two keys and their values.

    Raises:
        UsageError: the file cannot be read, or a pair of regions is missing.

    """
    path = Path(file)
    try:
        text = read_text(path)
    except OSError as error:
        raise UsageError(str(path), f"cannot be read ({error.strerror})", "Name a CSV or JSON file") from None
    except UnicodeDecodeError:
        raise UsageError(str(path), "is not a text file in UTF-8", "Name a CSV or JSON file") from None
    pings = from_json(path, text) if path.suffix == ".json" else from_csv(path, text)
    trips: dict[tuple[str, str], list[float]] = {}
    for where, start, end, value in pings:
        trips.setdefault((start, end), []).append(milliseconds(value, where))
    if not trips:
        raise UsageError(str(path), "contains no pings", "Write the header from,to,ms and one ping per line")
    regions = list(dict.fromkeys(place for pair in trips for place in pair))

    def one_way(start: str, end: str) -> float:
        measured = trips.get((start, end)) or trips.get((end, start))
        if measured is None:
            about = "between a client and its own server" if start == end else "in either direction"
            raise UsageError(str(path), f"has no ping from {start} to {end}", f"Add one: {about}")
        return round(median(measured) / 2, 6)

    return {"regions": regions, "latency-ms": [[one_way(start, end) for end in regions] for start in regions]}


def from_csv(path: Path, text: str) -> Iterator[Ping]:
    """Yield the pings of a CSV file."""
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip() and line[0] != "#"]
    rows = csv.reader(line for _, line in lines)
    header = [name.strip().lower() for name in next(rows, [])]
    missing = [column for column in COLUMNS if column not in header]
    if missing:
        raise UsageError(str(path), f"has no column {missing[0]!r}", f"Start it with the header {','.join(COLUMNS)}")
    for (number, _), row in zip(lines[1:], rows, strict=True):
        where = f"{path}, line {number}"
        if len(row) != len(header):
            raise UsageError(where, f"has {len(row)} entries", f"There are {len(header)} columns")
        cells = dict(zip(header, map(str.strip, row), strict=True))
        for column in ("from", "to"):
            if not cells[column]:
                raise UsageError(where, f"column {column!r} is empty", "Name a region")
        yield where, cells["from"], cells["to"], cells["ms"]


def from_json(path: Path, text: str) -> Iterator[Ping]:
    """Yield the pings of a JSON file."""
    try:
        table = parse_json(text)
    except ValueError as error:
        raise UsageError(str(path), f"is not valid JSON: {error}", "Fix the syntax") from None
    if not isinstance(table, dict) or not all(isinstance(row, dict) for row in table.values()):
        raise UsageError(str(path), "is not an object of objects", 'Write {"Paris": {"Sydney": 559.1, …}, …}')
    for start, row in table.items():
        for end, values in row.items():
            for value in values if isinstance(values, list) else [values]:
                yield f"{path}, from {start} to {end}", start, end, value


def milliseconds(value: object, where: str) -> float:
    """Parse a duration in milliseconds; raise a ``UsageError`` if it is invalid."""
    try:
        number = math.nan if isinstance(value, bool) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        number = math.nan
    if not (math.isfinite(number) and number >= 0):
        raise UsageError(where, f"{value!r} is not allowed", "Write milliseconds, such as 142.5")
    return number
