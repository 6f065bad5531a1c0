"""Compare the time to the target of Stride with and without its safety rules, in the worlds of the race.

python -m benchmarks.stride_worlds [--worlds NAME ...] [--seeds N] [--out FOLDER] [--jobs N] [--data-dir FOLDER]

The settings are those that the race's search found for Stride. Exit code 1 if the safety rules cost more time than the
limits allow.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from spyker.api.datasets import data_from, prepare_data
from spyker.api.interrupts import interrupts
from spyker.config.scenario import Scenario, load
from spyker.sweeps.runner import locked_folder, run_watched, with_seeds
from spyker.tasks.registry import resolve
from spyker_lab.race.board import read_cell
from spyker_lab.race.worlds import FULL, IID, STAY, RaceWorld

WORLDS = FULL.worlds
COMPACT = [world.name for world in WORLDS.values() if world.compact]  # the default
SETTINGS = {"algorithm": "stride", "training.rate": 0.2, "stride.gain": 1.0, "stride.momentum": 0.9}
LIMIT, IID_LIMIT = 1.05, 1.10  # ratio of the times, at most


def scenarios(world: RaceWorld, seeds: int, *, safe: bool) -> Sequence[Scenario]:
    """Return the scenarios of a world, one per seed; a run stops once the target has held."""
    settings: dict[str, object] = {
        **world.settings,
        **SETTINGS,
        "stride.safe": safe,
        "duration": world.horizon + STAY,
        "evaluation.stop-at": world.target,
        "evaluation.stop-after": STAY,
    }
    return with_seeds(resolve(load(None, settings)), seeds)


def times(world: RaceWorld, seeds: int, root: Path, *, safe: bool) -> list[float]:
    """Return the times to the target by seed; the horizon where it was not reached."""
    cell = read_cell(scenarios(world, seeds, safe=safe), root, world)
    return [] if cell is None else cell.stays.filled


def main() -> int:
    """Run the worlds and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stride_worlds", description=__doc__)
    parser.add_argument(
        "--worlds", nargs="+", choices=WORLDS, default=COMPACT, help="default: those of MNIST with 60 images"
    )
    parser.add_argument("--seeds", type=int, default=5, help="default: 5")
    parser.add_argument("--out", type=Path, default=Path("runs/stride-worlds"), help="finished runs are not repeated")
    parser.add_argument("--jobs", type=int, help="runs at the same time; default: one per core")
    parser.add_argument("--data-dir", type=Path, help="a folder with the datasets; default: the cache, or a download")
    args = parser.parse_args()
    worlds, root = [WORLDS[name] for name in args.worlds], args.out / "runs"
    wanted = [s for world in worlds for safe in (False, True) for s in scenarios(world, args.seeds, safe=safe)]
    with data_from(args.data_dir), locked_folder(root), interrupts() as stop:
        prepare_data(wanted, progress=True)
        run_watched("worlds", wanted, root, args.jobs, stop)
        if stop.interrupted:
            return 130
    print("| world | without safety rules | Stride | ratio |\n|---|---:|---:|---:|")
    exceeded = False
    for world in worlds:
        before, now = (statistics.fmean(times(world, args.seeds, root, safe=safe)) for safe in (False, True))
        print(f"| {world.title} | {before:.2f} s | {now:.2f} s | {now / before:.2f} |")
        exceeded |= now / before > (IID_LIMIT if world.name == IID else LIMIT)
    return int(exceeded)


if __name__ == "__main__":
    sys.exit(main())
