"""Comparison of an emulated run with a deployed one, from their run records.

The emulated run has one record, the deployed one a record per server.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from spyker.protocol.facts import CloudRoundEnded, Merged, RoundEnded, SyncStarted, UpdateApplied
from spyker.records import Evaluated, RunRecord

COUNTS, SYNCHRONISATIONS, ACCURACY = 0.05, 0.10, 0.03
"""Runs agree if versions, ages and bytes differ by at most 5 %, synchronisations by at most 10 % or one, and the
accuracy, averaged over the run, by at most 0.03."""


@dataclass(frozen=True)
class Observed:
    """The measurements of a run, up to some time."""

    versions: dict[int, int]
    ages: dict[int, float]
    synchronisations: int
    rounds: int
    bytes: int
    times: list[float]
    accuracy: list[float]
    """The servers' mean accuracy at each of ``times``."""
    cycle: float
    """Mean seconds between two updates of a client."""

    def reached(self, target: float) -> float | None:
        """Return the first time at which the accuracy reached a target."""
        return next((t for t, a in zip(self.times, self.accuracy, strict=True) if a >= target), None)


def observe(folders: Sequence[Path], until: float, interval: float) -> Observed:
    """Measure a run up to a time."""
    versions: dict[int, int] = {}
    ages: dict[int, float] = {}
    bids: set[int] = set()
    rounds = size = 0
    curves: list[list[tuple[float, float]]] = []
    last: dict[int, float] = {}
    cycles: list[float] = []
    runs = [RunRecord(folder) for folder in folders]
    zeros = [run.start.began or 0.0 for run in runs]
    for run, zero in zip(runs, zeros, strict=True):
        # HierFAVG's cloud has no clients to wait for, so its record starts earlier.
        early = max(zeros) - zero if not any(run.facts(Evaluated)) else 0.0
        curve: list[tuple[float, float]] = []
        sent = (run.summary or {}).get("bytes", {}).get("total", 0)  # HierFAVG's cloud has no evaluations
        for t, fact, _ in run.facts():
            if t - early > until + 1e-6:
                continue
            match fact:
                case UpdateApplied():
                    versions[fact.server] = fact.version
                    ages[fact.server] = fact.age
                    if fact.client in last:
                        cycles.append(t - last[fact.client])
                    last[fact.client] = t
                case Merged():
                    ages[fact.server] = fact.age
                case SyncStarted():
                    bids.add(fact.bid)
                case CloudRoundEnded():
                    bids.add(fact.round)
                case RoundEnded():
                    rounds += 1
                case Evaluated():
                    curve.append((t, fact.mean))
                    sent = fact.bytes
        curves += [curve] if curve else []
        size += sent
    times = [interval * i for i in range(1, int(until / interval + 1e-6) + 1)]
    accuracy = [sum(at(curve, t) for curve in curves) / len(curves) for t in times]
    cycle = sum(cycles) / len(cycles)
    return Observed(versions, ages, len(bids), rounds, size, times, accuracy, cycle)


def at(curve: list[tuple[float, float]], t: float) -> float:
    """Return the linearly interpolated value of a curve at a time."""
    i = bisect.bisect_left(curve, (t, 0.0))
    if i == 0:
        return curve[0][1]
    if i == len(curve):
        return curve[-1][1]
    (t0, a), (t1, b) = curve[i - 1], curve[i]
    return a + (b - a) * (t - t0) / (t1 - t0)


@dataclass(frozen=True)
class Row:
    """One compared measurement."""

    what: str
    emulated: str
    real: str
    difference: str
    agrees: bool | None
    """``None``: no agreement is required."""


def compare(emulated: Observed, real: Observed, targets: Sequence[float], regions: Sequence[str]) -> list[Row]:
    """Return all comparisons, in the order of the table."""
    rows = []

    def counts(what: str, a: float, b: float, digits: int = 0, tolerance: float | None = COUNTS) -> None:
        apart = (b - a) / a if a else float(b != a)
        agrees = None if tolerance is None else abs(apart) <= tolerance
        rows.append(Row(what, f"{a:,.{digits}f}", f"{b:,.{digits}f}", f"{100 * apart:+.1f} %", agrees))

    for i in emulated.versions:
        where = f" {regions[i]}" if len(emulated.versions) > 1 else ""
        counts(f"version{where}", emulated.versions[i], real.versions.get(i, 0))
    for i in emulated.ages:
        where = f" {regions[i]}" if len(emulated.ages) > 1 else ""
        counts(f"age{where}", emulated.ages[i], real.ages.get(i, 0.0), 1)
    for what, a, b in (
        ("synchronisations", emulated.synchronisations, real.synchronisations),
        ("rounds", emulated.rounds, real.rounds),
    ):
        if a or b:
            agrees = abs(b - a) <= max(1, SYNCHRONISATIONS * a)
            rows.append(Row(what, f"{a}", f"{b}", f"{100 * (b - a) / max(1, a):+.1f} %", agrees))
    counts("MB sent", emulated.bytes / 1e6, real.bytes / 1e6, 2)
    counts("ms between a client's updates", 1000 * emulated.cycle, 1000 * real.cycle, 1)
    last = len(emulated.times) - 1
    for quarter in (1, 2, 3, 4):
        i = last * quarter // 4
        x, y = emulated.accuracy[i], real.accuracy[i]
        rows.append(Row(f"accuracy at {emulated.times[i]:g} s", f"{x:.3f}", f"{y:.3f}", f"{y - x:+.3f}", None))
    apart = sum(abs(a - b) for a, b in zip(emulated.accuracy, real.accuracy, strict=True)) / len(emulated.times)
    rows.append(Row("accuracy, mean distance of the curves", "", "", f"{apart:.3f}", apart <= ACCURACY))
    for target in targets:
        then, really = emulated.reached(target), real.reached(target)
        if then is not None and really is not None:
            counts(f"seconds to {target:g}", then, really, 1, None)
    return rows


def as_markdown(rows: Sequence[Row]) -> str:
    """Return the rows as a Markdown table."""
    marks = {True: "yes", False: "**no**", None: "–"}
    lines = ["| | emulated | real | difference | agree |", "|---|---:|---:|---:|---|"]
    lines += [f"| {r.what} | {r.emulated} | {r.real} | {r.difference} | {marks[r.agrees]} |" for r in rows]
    return "\n".join(lines) + "\n"
