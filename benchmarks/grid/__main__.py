"""Run the missing cells of the grid, and write its table."""

from __future__ import annotations

import argparse
import sys
from importlib.util import find_spec
from pathlib import Path

from benchmarks.grid.cells import Cell, flower_cells, sample
from benchmarks.grid.report import Row, missed, published_scores, ran, report, row_of, verdict
from spyker.api.datasets import data_from, prepare_data
from spyker.api.interrupts import interrupts
from spyker.sweeps.runner import locked_folder, run_watched

SEEDS = (1, 2, 3)
"""Every cell is run with the first seed; cells below a limit are repeated with all seeds, and their mean counts."""


def main() -> int:
    """Run cells; return 1 if a limit is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.grid", description=__doc__)
    parser.add_argument("--cells", type=int, default=306, help="how many cells to sample; default: 306")
    parser.add_argument("--out", type=Path, default=Path("runs/grid"), help="finished runs here are not repeated")
    parser.add_argument(
        "--published", type=Path, help="run Stride alone, and take the scores of the others from this report"
    )
    parser.add_argument("--document", type=Path, help="write the table there")
    parser.add_argument("--jobs", type=int, help="runs at the same time; default: one per core")
    parser.add_argument("--data-dir", type=Path, help="a folder with MNIST; default: the cache, or a download")
    args = parser.parse_args()
    cells = sample(args.cells)
    if find_spec("flwr") is None:
        print("Flower is not installed: the cells of the Flower app are left out (make grid has them)", file=sys.stderr)
    else:
        cells += flower_cells()
    published = published_scores(args.published) if args.published else {}
    cells = [cell for cell in cells if not published or str(cell) in published]
    root = args.out / "runs"
    with data_from(args.data_dir), locked_folder(root), interrupts() as stop:
        prepare_data([cell.scenario("fedavg", 1) for cell in cells if cell.model == "mnist cnn"][:1], progress=True)

        def run(some: list[Cell], seed: int) -> None:
            scenarios = [cell.scenario(algorithm, seed) for cell in some for algorithm in ran(published)]
            run_watched(f"seed {seed}", scenarios, root, args.jobs, stop)

        run(cells, SEEDS[0])
        if stop.interrupted:
            return 130
        rows: dict[Cell, Row] = {cell: row_of(cell, root, SEEDS[:1], published) for cell in cells}
        again = [cell for cell, row in rows.items() if missed(row)]
        for seed in SEEDS[1:]:
            run(again, seed)
        if stop.interrupted:
            return 130
        rows |= {cell: row_of(cell, root, SEEDS, published) for cell in again}
    text = report(rows)
    if args.document:
        args.document.write_text(text, encoding="utf-8")
    print(text if not args.document else f"{args.document} is written")
    print(verdict(rows))
    return int(bool(verdict(rows).startswith("missed")))


if __name__ == "__main__":
    sys.exit(main())
