"""Ablation of Stride's safety rules on a part of the grid: ``python -m benchmarks.grid.ablation``."""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from pathlib import Path
from typing import Any

from benchmarks.grid.cells import sample
from benchmarks.grid.report import final
from spyker.algorithms.consensus import Consensus
from spyker.algorithms.reach import Reach
from spyker.algorithms.stride import Stride
from spyker.api.datasets import data_from
from spyker.api.interrupts import interrupts
from spyker.config.algorithms import find_algorithm
from spyker.sweeps.runner import locked_folder, run_watched

ROOT = Path(__file__).resolve().parents[2]


UNBOUNDED = 1e300  # finite: infinity times an agreement of 0 is NaN


class Unbounded(Reach):
    """A reach that does not limit the norm of steps."""

    def observe(self, *args: Any) -> None:
        super().observe(*args)
        self.bound = self.widest = UNBOUNDED


class Trusting(Consensus):
    """A consensus that always applies a server's own progress in full."""

    def expect(self, agreement: float, share: float, clients: int = 1) -> None:
        pass

    def measure(self, bid: int, own: float, clients: int = 1) -> None:
        pass


class Unextended(Consensus):
    """A consensus that does not extend a steady common model."""

    extension = 1.0


class Built(Stride):
    """Base class of the variants, for few servers."""

    section = Stride.section

    @classmethod
    def build(cls, id: int, setup: Any, roster: Any) -> Stride:
        return cls(id, setup, roster)


class NoReach(Built):
    name, title = "stride-no-reach", "no bound on steps"

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.step_reach = Unbounded()


class NoConsensus(Built):
    name, title = "stride-no-consensus", "own progress counts in full"

    def __init__(self, id: int, setup: Any, roster: Any) -> None:
        super().__init__(id, setup, roster)
        self.consensus = Trusting(setup.weights, setup.buffers)


class NoExtension(Built):
    name, title = "stride-no-extension", "no extension of steady steps"

    def __init__(self, id: int, setup: Any, roster: Any) -> None:
        super().__init__(id, setup, roster)
        self.consensus = Unextended(setup.weights, setup.buffers)
        if len(roster) < 2:
            self.consensus.expect(0.0, 1 / setup.servers)


class TokenOnly(Built):
    name, title = "stride-token-only", "exchanges wait for the token"

    def needs_averaging(self) -> bool:
        return False

    def merge(self, j: int, theirs: Any, *, wait: bool = True) -> None:
        super().merge(j, theirs, wait=False)


class NoRules(Built):
    name, title = "stride-no-rules", "no rule (safe = false)"

    @classmethod
    def build(cls, id: int, setup: Any, roster: Any) -> Stride:
        from dataclasses import replace

        return cls(id, replace(setup, parameters=replace(setup.parameters, safe=False)), roster)


VARIANTS = ("stride", *(f"{__name__}:{c.__name__}" for c in (NoReach, NoConsensus, TokenOnly, NoExtension, NoRules)))
if __name__ == "__main__":
    VARIANTS = tuple(name.replace("__main__", "benchmarks.grid.ablation") for name in VARIANTS)


def main() -> int:
    """Run the variants and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.grid.ablation", description=__doc__)
    parser.add_argument("--cells", type=int, default=60, help="the first so many of the grid; default: 60")
    parser.add_argument("--out", type=Path, default=Path("runs/grid"), help="finished runs here are not repeated")
    parser.add_argument("--jobs", type=int, help="runs at the same time; default: one per core")
    parser.add_argument("--data-dir", type=Path, help="a folder with MNIST; default: the cache, or a download")
    args = parser.parse_args()
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    cells, root = sample(306)[: args.cells], args.out / "runs"
    rivals = ("fedavg", "hierfavg")
    with data_from(args.data_dir), locked_folder(root), interrupts() as stop:
        scenarios = [cell.scenario(algorithm, 1) for cell in cells for algorithm in (*rivals, *VARIANTS)]
        run_watched("ablation", scenarios, root, args.jobs, stop)
        if stop.interrupted:
            return 130
    best = {cell: max(final(cell, rival, 1, root) for rival in rivals) for cell in cells}
    print("| Stride | > 1 point behind | > 2 points | > 10 points | mean margin |\n|---|---:|---:|---:|---:|")
    for algorithm in VARIANTS:
        margins = [final(cell, algorithm, 1, root) - best[cell] for cell in cells]
        counts = " | ".join(str(sum(margin < -bar for margin in margins)) for bar in (0.01, 0.02, 0.1))
        title = "as it is" if algorithm == "stride" else find_algorithm(algorithm).title
        print(f"| {title} | {counts} | {statistics.fmean(margins):+.3f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
