"""The points of a sweep: all combinations of values of some keys."""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from spyker.config.scenario import Scenario
from spyker.config.sections import show
from spyker.errors import UsageError
from spyker.plots.curves import curve, targets
from spyker.plots.samples import SeedSample, sample
from spyker.records import RunRecord


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """One combination of values."""

    values: Mapping[str, object]
    scenario: Scenario


def combinations(vary: Mapping[str, Sequence[object]]) -> list[dict[str, object]]:
    """Return all combinations of values by key, the last key varying fastest."""
    if not vary:
        raise UsageError("--vary", "is missing", "Write --vary section.key=a,b,c")
    for key, values in vary.items():
        if isinstance(values, str) or not isinstance(values, Sequence) or not values:
            raise UsageError(f"--vary {key}", f"{show(values)} is not allowed", "Give a list of values")
    return [dict(zip(vary, values, strict=True)) for values in itertools.product(*vary.values())]


@dataclass(frozen=True, slots=True)
class SweepRow:
    """The results of one combination, with one number per seed; empty measures if all runs diverged."""

    values: Mapping[str, object]
    seeds: Sequence[int]
    folders: Sequence[str]
    """The run record of each seed."""
    measures: Mapping[str, SeedSample]


def row(point: SweepPoint, runs: Sequence[RunRecord | None], folders: Sequence[str]) -> SweepRow:
    """Measure the runs of one combination, one per seed, with their folders."""
    measures: dict[str, SeedSample] = {}
    drawn = [None if run is None else curve(run) for run in runs]
    metric = next((c.metric for c in drawn if c is not None), None)
    if metric is not None:
        for target in targets([run for run in runs if run is not None]):
            hits = [None if c is None else c.reached(target) for c in drawn]
            measures[f"time to {target:g}"] = sample(hit and hit[0] for hit in hits)
            measures[f"updates to {target:g}"] = sample(hit and hit[1] for hit in hits)
            hits = [None if c is None else c.reached(target, c.averaged) for c in drawn]
            measures[f"time to {target:g}, averaged model"] = sample(hit and hit[0] for hit in hits)
        measures[f"final {metric}"] = sample(None if c is None else c.mean[-1] for c in drawn)
        measures[f"final {metric}, averaged model"] = sample(None if c is None else c.averaged[-1] for c in drawn)
    return SweepRow(point.values, [point.scenario.seed + i for i in range(len(runs))], folders, measures)


def all_measures(rows: Sequence[SweepRow]) -> list[str]:
    """Return the names of all measures; combinations with different tasks or targets have different ones."""
    return list(dict.fromkeys(measure for r in rows for measure in r.measures))


def lines(rows: Sequence[SweepRow]) -> tuple[list[str], list[list[object]]]:
    """Return headings and one line per combination and seed, with all numbers."""
    keys = [key for key in rows[0].values if key != "seed"]
    measures = all_measures(rows)
    body: list[list[object]] = []
    for r in rows:
        for i, seed in enumerate(r.seeds):
            numbers = [r.measures[m].numbers[i] if m in r.measures else None for m in measures]
            body.append([*(r.values[k] for k in keys), seed, r.folders[i], *numbers])
    return [*keys, "seed", "folder", *measures], body


def as_csv(rows: Sequence[SweepRow]) -> str:
    """Return all numbers as a CSV file."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    heads, body = lines(rows)
    writer.writerow(heads)
    first = heads.index("folder") + 1
    for line in body:
        writer.writerow([*line[:first], *("" if n is None else f"{n:g}" for n in line[first:])])
    return file.getvalue()


def main_measures(rows: Sequence[SweepRow]) -> list[str]:
    """Return the names of the measures in tables and figures."""
    return [m for m in all_measures(rows) if not m.startswith("updates") and "averaged" not in m]


def cells(rows: Sequence[SweepRow]) -> tuple[list[str], list[list[str]]]:
    """Return headings and one line of text per combination, with means over seeds."""
    shown = main_measures(rows)
    body = []
    for r in rows:
        missing = "" if r.measures else "diverged"
        values = [value if isinstance(value, str) else show(value) for value in r.values.values()]
        body.append([*values, *(r.measures[m].text() if m in r.measures else missing for m in shown)])
    return [*(key.rpartition(".")[2] for key in rows[0].values), *shown], body
