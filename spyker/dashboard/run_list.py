"""The runs on the dashboard: all in some folders, including those that are started later."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spyker.dashboard.watched_run import WatchedRun
from spyker.plots.run_groups import differences, labels, settings
from spyker.plots.styles import BLACK, line_styles
from spyker.records import RecordError, RunRecord, RunStarted, first_fact, is_record
from spyker.records.reader import by_name, no_record

MOST = 12  # maximum number of runs


class RunList:
    """Runs by number. The number of a run does not change while the dashboard is open."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self.folders = list(folders)
        self.runs: dict[int, WatchedRun] = {}
        self._known: dict[tuple[Path, ...], int] = {}
        self._labels: dict[int, tuple[str, str]] = {}
        self.changes = 0

    def refresh(self) -> None:
        """Find new runs, and drop deleted or replaced ones."""
        found = grouped([record for folder in self.folders for record in records_in(folder)])
        keys = {tuple(sorted(folder for folder, _ in group)): group for group in found[:MOST]}
        for key, number in list(self._known.items()):
            if key not in keys or self.runs[number].replaced():
                del self.runs[number], self._known[key]
                self.changes += 1
        for key, group in keys.items():
            if key not in self._known:
                run = WatchedRun([folder for folder, _ in group], [start for _, start in group])
                number = 1 + max(self.runs, default=-1)
                self._known[key], self.runs[number] = number, run
                self.changes += 1
        if set(self._labels) != set(self.runs):
            self._labels = self._make_labels()

    def _make_labels(self) -> dict[int, tuple[str, str]]:
        """Return label and colour of each run."""
        if not self.runs:
            return {}
        records = [run.records[0] for run in self.runs.values()]
        found = [settings(record) for record in records]
        names = labels(records, found, differences(found))
        colours = [str(style["color"]) for style in line_styles(names)]
        return {
            number: (name, "ink" if colour == BLACK else colour)
            for number, name, colour in zip(self.runs, names, colours, strict=True)
        }

    def advance(self) -> bool:
        """Read new facts of all runs; return whether there were any."""
        advanced = [run.advance() for run in list(self.runs.values()) if not run.finished]
        return any(advanced)

    def payload(self) -> list[dict[str, Any]]:
        """Return the JSON for the browser."""
        return [
            {
                "id": number,
                "label": self._labels[number][0],
                "colour": self._labels[number][1],
                "folder": str(run.parts[0].folder),
                "parts": len(run.parts),
                **run.world.payload(),
            }
            for number, run in list(self.runs.items())
            if number in self._labels
        ]


def records_in(folder: Path) -> list[Path]:
    """Return the records in a folder: itself, those directly below it, or those of a deployment's servers."""
    if is_record(folder) and (folder / "facts.jsonl").exists():
        return [folder]
    places = ("[!.]*", "runs/[!.]*", "[!.]*/record")
    return sorted({path for place in places for path in folder.glob(place) if is_record(path)}, key=by_name)


def grouped(folders: Sequence[Path]) -> list[list[tuple[Path, RunStarted]]]:
    """Group records by run: the servers of a deployment have the same scenario."""
    groups: list[list[tuple[Path, RunStarted]]] = []
    deployments: dict[str, list[tuple[Path, RunStarted]]] = {}
    for folder in dict.fromkeys(folders):
        try:
            start = first_fact(folder)
        except RecordError:
            continue
        if start is None:
            continue
        if start.server is None:
            groups.append([(folder, start)])
            continue
        key = str(RunRecord(folder).scenario)
        group = deployments.get(key)
        if group is None or any(start.server == other.server for _, other in group):
            group = deployments[key] = []
            groups.append(group)
        group.append((folder, start))
    return groups


def check_runs(folders: Sequence[Path]) -> None:
    """Raise a ``RecordError`` for a folder without a run."""
    for folder in folders:
        found = records_in(folder)
        if not found:
            raise RecordError(f"{folder} {no_record(folder)}")
        for record in found:
            first_fact(record)
