"""Compare final scores with and without the update filter, with honest clients, in cells of the regression grid.

python -m benchmarks.honest_cells [--cells N] [--out FOLDER] [--data-dir FOLDER]

Takes cells with at least five clients per region, where all rules of the filter apply. Finished runs are not repeated.
Exit code 1 if a score falls by more than two points.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.grid.cells import Cell, sample
from benchmarks.grid.report import LAST, MOST
from spyker.api.datasets import data_from, prepare_data
from spyker.api.interrupts import interrupts
from spyker.config.scenario import Scenario
from spyker.records import Evaluated
from spyker.robust.update_filter import ALWAYS, NEVER
from spyker.sweeps.runner import locked_folder, run_of, run_watched

ALGORITHMS = ("stride", "fedavg")
SAMPLED, LEAST_CLIENTS, SHOWN = 306, 5, 0.01


def chosen(count: int) -> list[Cell]:
    """Return cells of the grid, in an order that follows from no score."""
    cells = [cell for cell in sample(SAMPLED) if cell.clients >= LEAST_CLIENTS]
    order = np.random.default_rng(1).permutation(len(cells))
    return [cells[i] for i in order[:count]]


def scenario(cell: Cell, algorithm: str, when: str) -> Scenario:
    """Return the scenario of a cell with the filter on or off."""
    plain = cell.scenario(algorithm, 1)
    return replace(plain, robust=replace(plain.robust, when=when))


def final(plan: Scenario, root: Path) -> float:
    """Return the mean over servers and over the last quarter of a run; 0 if it diverged."""
    record = run_of(plan, root)
    if record is None:
        return 0.0
    scores = [(stated.t, stated.fact.mean) for stated in record.facts(Evaluated)]
    return statistics.fmean(score for t, score in scores if t > (1 - LAST) * scores[-1][0])


def main() -> int:
    """Run cells, and print the differences."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.honest_cells", description=__doc__)
    parser.add_argument("--cells", type=int, default=28, help="how many cells; default: 28")
    parser.add_argument(
        "--out", type=Path, default=Path("runs/honest-cells"), help="finished runs here are not repeated"
    )
    parser.add_argument("--data-dir", type=Path, help="a folder with MNIST; default: the cache, or a download")
    args = parser.parse_args()
    cells, worst = chosen(args.cells), 0.0
    plans = [scenario(cell, a, when) for cell in cells for a in ALGORITHMS for when in (ALWAYS, NEVER)]
    with data_from(args.data_dir), locked_folder(args.out), interrupts() as stop:
        prepare_data([plan for plan in plans if plan.task.name == "mnist"][:1], progress=True)
        run_watched("cells", plans, args.out, None, stop)
        if stop.interrupted:
            return 130
    for algorithm in ALGORITHMS:
        scores = {c: [final(scenario(c, algorithm, when), args.out) for when in (NEVER, ALWAYS)] for c in cells}
        changes = {cell: filtered - plain for cell, (plain, filtered) in scores.items()}
        for cell, change in changes.items():
            if abs(change) > SHOWN:
                print(f"{algorithm}, {cell}: {scores[cell][0]:.3f} without the filter, {scores[cell][1]:.3f} with it")
        mean, least, most = statistics.fmean(changes.values()), min(changes.values()), max(changes.values())
        print(f"{algorithm}: {len(cells)} cells, change {mean:+.4f} on average, {least:+.4f} to {most:+.4f}")
        worst = min(worst, least)
    return int(worst < -MOST)


if __name__ == "__main__":
    sys.exit(main())
