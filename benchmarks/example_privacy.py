"""What example-level differential privacy costs in accuracy: MNIST, 100 clients with 600 images each.

python -m benchmarks.example_privacy [--epsilon 8 2] [--seeds N] [--workers N]

Stride with and without ``privacy.unit = "example"``, in the same world with the same data. Runs without privacy use the
default learning rate and batch size. Downloads MNIST unless ``SPYKER_DATA`` names a folder that has it.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any

import spyker

TRAININGS = 40
WORLD: dict[str, Any] = {
    "task.name": "mnist",
    "task.partition": "iid",
    "task.images-per-client": 600,
    "duration": 12.0,
    "evaluation.interval": 1.0,
}
PLAIN: dict[str, Any] = {}
PRIVATE: dict[str, Any] = {
    "privacy.unit": "example",
    "privacy.delta": 1e-5,
    "privacy.trainings": TRAININGS,
    "training.batch-size": 600,
    "training.rate": 1.0,
}


def accuracy(settings: dict[str, Any], seed: int, workers: int) -> tuple[float, float]:
    """Return the final accuracy of a run and the highest ε of a client."""
    with tempfile.TemporaryDirectory() as folder:
        run = spyker.run(settings=WORLD | settings | {"seed": seed}, out=Path(folder) / "run", workers=workers)
        summary = run.summary
        return summary["final"]["mean"], summary.get("privacy", {}).get("epsilon", float("inf"))


def main() -> None:
    """Run and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epsilon", nargs="+", type=float, default=[8.0, 2.0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    rows: list[tuple[str, dict[str, Any]]] = [("none", PLAIN)]
    rows += [(f"{epsilon:g}", PRIVATE | {"privacy.epsilon": epsilon}) for epsilon in args.epsilon]
    print(f"{'epsilon':>8} {'booked':>8}  accuracy, mean of {args.seeds} seeds (lowest)", flush=True)
    for name, settings in rows:
        found = [accuracy(settings, seed, args.workers) for seed in range(1, args.seeds + 1)]
        scores = [score for score, _ in found]
        print(
            f"{name:>8} {max(e for _, e in found):>8.3f}  {statistics.mean(scores):.4f} ({min(scores):.4f})", flush=True
        )


if __name__ == "__main__":
    main()
