"""The table of all runs of a folder: each kind of faults relative to the runs without faults."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from pathlib import Path

from chaos.goodput.figures import Figures

HEADS = [
    "system", "faults", "runs", "updates/s", "of fault-free", "single runs", "most possible", "lost with disks",
    "time to target", "of fault-free", "longest gap", "in a region", "final score",
]  # fmt: skip


def save(folder: Path, figures: Figures) -> Path:
    """Add a run to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    number = len(list(folder.glob("*.json")))
    path = folder / f"{number:03}-{figures.system}.json"
    path.write_text(json.dumps(figures.table(), indent=2) + "\n", "utf-8")
    return path


def read(folders: Sequence[Path]) -> list[Figures]:
    """Read the runs of some folders."""
    return [Figures(**json.loads(path.read_text("utf-8"))) for f in folders for path in sorted(f.glob("*.json"))]


def possible(run: Figures) -> float:
    """Return the share of a fault-free run's updates that no system can exceed under a run's kills of clients."""
    return 1 - run.floor / (run.clients * run.seconds)


def mean_time(runs: Sequence[Figures]) -> float | None:
    """Return the mean time to the target; ``None`` if a run did not reach it."""
    times = [run.to_target for run in runs if run.to_target is not None]
    return statistics.mean(times) if len(times) == len(runs) else None


def rows(runs: Sequence[Figures]) -> list[list[str]]:
    """Return the rows of the table: per system the runs without faults, then one row per kind of faults."""
    found = []
    for system in dict.fromkeys(run.system for run in runs):
        own = [run for run in runs if run.system == system]
        base = [run for run in own if not run.faults]
        kinds = sorted({run.faults for run in own})
        found += [row([run for run in own if run.faults == faults], base) for faults in kinds]
    return found


def row(some: Sequence[Figures], base: Sequence[Figures]) -> list[str]:
    """Return the row of some runs with the same faults; ``base`` are the runs without."""
    first = some[0]
    rate, time = statistics.mean(run.rate for run in some), mean_time(some)
    whole = statistics.mean(run.rate for run in base) if base else None
    fast = mean_time(base) if base else None
    relative = bool(first.faults) and whole is not None
    return [
        first.system,
        first.faults or "none",
        str(len(some)),
        f"{rate:.2f}",
        f"{rate / whole:.1%}" if relative and whole else "–",
        ", ".join(f"{run.rate / whole:.1%}" if relative and whole else f"{run.rate:.2f}" for run in some),
        f"{statistics.mean(map(possible, some)):.1%}" if first.faults else "–",
        str(sum(run.lost for run in some)),
        "not reached" if time is None else f"{time:.0f} s",
        f"{time / fast:.2f}" if relative and time is not None and fast else "–",
        f"{max(run.gap for run in some):.1f} s",
        f"{max(run.region_gap for run in some):.1f} s",
        f"{statistics.mean(run.score for run in some):.3f}",
    ]


def markdown(runs: Sequence[Figures]) -> str:
    """Return the table."""
    lines = [HEADS, ["---"] * len(HEADS), *rows(runs)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
