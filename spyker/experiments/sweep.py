"""Sweeps: one scenario, some keys with several values each, all combinations."""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from spyker.config.scenario import Scenario, parse_value
from spyker.config.sections import ScenarioError
from spyker.experiments.numbers import Sample, sample
from spyker.records import Run
from spyker.show.curves import curve, targets


@dataclass(frozen=True, slots=True)
class Point:
    """One combination of values."""

    values: Mapping[str, object]
    scenario: Scenario


def split_values(text: str) -> tuple[str, list[object]]:
    """``key=a,b,c`` as a key and its values. Commas inside brackets and quotes do not separate."""
    key, equals, rest = text.partition("=")
    if not equals or not key.strip() or not rest.strip():
        raise ScenarioError(f"--vary {text}", "has no values", "Write --vary section.key=a,b,c")
    parts, depth, quote = [""], 0, ""
    for char in rest:
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        depth += (char in "[{") - (char in "]}")
        if char == "," and depth == 0 and not quote:
            parts.append("")
        else:
            parts[-1] += char
    values = [parse_value(part.strip()) for part in parts]
    if "" in values:
        raise ScenarioError(f"--vary {text}", "has an empty value", "Write --vary section.key=a,b,c")
    return key.strip(), values


def combinations(varied: Sequence[tuple[str, Sequence[object]]]) -> list[dict[str, object]]:
    """All combinations, the last key varying fastest."""
    keys = [key for key, _ in varied]
    for key in keys:
        if keys.count(key) > 1:
            raise ScenarioError("--vary", f"names {key} twice", "Give all values of a key at once")
    return [dict(zip(keys, values, strict=True)) for values in itertools.product(*(v for _, v in varied))]


@dataclass(frozen=True, slots=True)
class Row:
    """What came of one combination, one number per seed; no measures at all if every run diverged."""

    values: Mapping[str, object]
    seeds: Sequence[int]
    measures: Mapping[str, Sample]


def row(point: Point, runs: Sequence[Run | None]) -> Row:
    """Measure the runs of one combination, one per seed."""
    measures: dict[str, Sample] = {}
    drawn = [None if run is None else curve(run, run.start.title) for run in runs]
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
    return Row(point.values, [point.scenario.seed + i for i in range(len(runs))], measures)


def all_measures(rows: Sequence[Row]) -> list[str]:
    """What any of the combinations has; tasks and targets may differ."""
    return list(dict.fromkeys(measure for r in rows for measure in r.measures))


def as_csv(rows: Sequence[Row]) -> str:
    """All numbers, one line per combination and seed."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    keys = [key for key in rows[0].values if key != "seed"]
    measures = all_measures(rows)
    writer.writerow([*keys, "seed", *measures])
    for r in rows:
        for i, seed in enumerate(r.seeds):
            numbers = [r.measures[m].numbers[i] if m in r.measures else None for m in measures]
            writer.writerow([*(r.values[k] for k in keys), seed, *("" if n is None else f"{n:g}" for n in numbers)])
    return file.getvalue()
