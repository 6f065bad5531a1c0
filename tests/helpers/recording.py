"""Records made by hand."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from spyker import __version__
from spyker.protocol.facts import UpdateApplied
from spyker.records import Evaluated, Fact, RecordWriter, RunStarted, ServerPlace
from spyker.records.run_facts import FORMAT

SCENARIO = 'algorithm = "spyker"\n'


def started(server: int | None = None, began: float | None = None, **changes: Any) -> RunStarted:
    """The first fact of a run of two servers with two clients each; deployed, if it ``began`` at some time."""
    fields: dict[str, Any] = {
        "format": FORMAT,
        "spyker": __version__,
        "algorithm": "spyker",
        "title": "Spyker",
        "task": "quadratic",
        "metric": "accuracy",
        "higher_is_better": True,
        "regions": ["here", "there"],
        "servers": [ServerPlace(0, "here", 2), ServerPlace(1, "there", 2)],
        "clients": 4,
        "seed": 1,
        "targets": [0.5],
        "interval": 1.0,
        "world": "emulated" if began is None else "deployed",
        "server": server,
        "began": began,
    }
    return RunStarted(**fields | changes)


def write(
    folder: Path,
    start: RunStarted | None,
    facts: Iterable[tuple[float, Fact]],
    summary: dict[str, Any] | None = None,
    scenario: str = SCENARIO,
) -> Path:
    """A record of these facts."""
    writer = RecordWriter(folder, scenario, at_once=True)
    if start is not None:
        writer.write(0.0, start)
    for t, fact in facts:
        writer.write(t, fact, 1 if isinstance(fact, UpdateApplied) else None)
    writer.close(summary)
    return folder


def applied(server: int, version: int, client: int = 0) -> UpdateApplied:
    """An update."""
    return UpdateApplied(server, client, 0.0, 1.0, float(version), version, 0.1)


def judged(updates: int, score: float, size: int = 100) -> Evaluated:
    """An evaluation of one server."""
    return Evaluated(updates, size, score, score, score, score, [score])
