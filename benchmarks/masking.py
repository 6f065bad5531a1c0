"""Compare the time to the target and the bytes of Stride with and without secure aggregation, by the helpers' places.

python -m benchmarks.masking [--delays SECONDS ...] [--seeds N] [--out FOLDER] [--jobs N] [--data-dir FOLDER]

The world is that of the race with two labels per client; the settings are those that the race's search found for
Stride. Rows are the durations of a training. Exit code 1 if a helper in each region costs more time, or masks cost
clients more bytes, than the limits allow.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.stride_worlds import SETTINGS, WORLDS
from spyker.api.datasets import data_from, prepare_data
from spyker.api.interrupts import interrupts
from spyker.config.scenario import Scenario, load
from spyker.records import RunRecord
from spyker.sweeps.runner import folder_of, is_finished, locked_folder, run_watched, with_seeds
from spyker.tasks.registry import resolve
from spyker_lab.race.board import read_cell
from spyker_lab.race.worlds import STAY, TWO_LABELS

WORLD = WORLDS[TWO_LABELS]
MODES: dict[str, dict[str, object]] = {
    "no masks": {},
    "helper in each region": {"privacy.masking": True, "privacy.helpers": [0, 1, 2, 3]},
    "servers of other regions": {"privacy.masking": True},
}
NEAR = "helper in each region"
DELAYS = (0.15, 1.0, 10.0)  # seconds of a training
SPREAD = 0.06  # standard deviation of clients' delays, as a share of the mean: as in the default world
LIMIT, BYTES_LIMIT = 1.10, 1.05  # ratio of the times with near helpers, and of the bytes of clients, at most


def scenarios(mode: str, delay: float, seeds: int) -> Sequence[Scenario]:
    """Return the scenarios of a row, one per seed; a run stops once the target has held."""
    longer = max(1.0, delay / DELAYS[0])
    settings: dict[str, object] = {
        **WORLD.settings,
        **SETTINGS,
        **MODES[mode],
        "duration": longer * WORLD.horizon + STAY,
        "evaluation.interval": 0.25 * max(1.0, delay),
        "evaluation.stop-at": WORLD.target,
        "evaluation.stop-after": STAY * max(1.0, delay),
    }
    if delay != DELAYS[0]:
        settings["training.delay-ms"] = {"mean": 1000 * delay, "std": 1000 * delay * SPREAD}
    return with_seeds(resolve(load(None, settings)), seeds)


def times(found: Sequence[Scenario], root: Path) -> list[float]:
    """Return the times to the target by seed; the duration where it was not reached."""
    cell = read_cell(found, root, WORLD)
    if cell is None:
        return [float("nan")]
    first = [None if c is None else c.reached(WORLD.target) for c in cell.curves]
    return [s.duration if hit is None else hit[0] for s, hit in zip(found, first, strict=True)]


def bytes_per_update(found: Sequence[Scenario], root: Path) -> float:
    """Return the bytes that clients send per update."""
    ratios = []
    for scenario in found:
        if is_finished(folder_of(scenario, root)):
            summary = RunRecord(folder_of(scenario, root)).summary
            assert summary is not None
            ratios.append(summary["bytes"]["client-to-server"] / summary["updates"])
    return statistics.fmean(ratios) if ratios else float("nan")


def main() -> int:
    """Run the rows and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.masking", description=__doc__)
    parser.add_argument("--delays", nargs="+", type=float, default=list(DELAYS), help="seconds of a training")
    parser.add_argument("--seeds", type=int, default=3, help="default: 3")
    parser.add_argument("--out", type=Path, default=Path("runs/masking"), help="finished runs are not repeated")
    parser.add_argument("--jobs", type=int, help="runs at the same time; default: one per core")
    parser.add_argument("--data-dir", type=Path, help="a folder with MNIST; default: the cache, or a download")
    args = parser.parse_args()
    root = args.out / "runs"
    rows = {(delay, mode): scenarios(mode, delay, args.seeds) for delay in args.delays for mode in MODES}
    wanted = [scenario for row in rows.values() for scenario in row]
    with data_from(args.data_dir), locked_folder(root), interrupts() as stop:
        prepare_data(wanted[:1], progress=True)
        run_watched("masking", wanted, root, args.jobs, stop)
        if stop.interrupted:
            return 130
    print("| training | helpers | time to target | ratio | bytes per update | ratio |\n|---:|---|---:|---:|---:|---:|")
    exceeded = False
    for (delay, mode), found in rows.items():
        plain = rows[delay, "no masks"]
        took, before = (statistics.fmean(times(row, root)) for row in (found, plain))
        size, size_before = (bytes_per_update(row, root) for row in (found, plain))
        print(f"| {delay:g} s | {mode} | {took:.2f} s | {took / before:.2f} | {size:,.0f} | {size / size_before:.3f} |")
        exceeded |= mode != "no masks" and size / size_before > BYTES_LIMIT
        exceeded |= mode == NEAR and delay == DELAYS[0] and took / before > LIMIT
    return int(exceeded)


if __name__ == "__main__":
    sys.exit(main())
