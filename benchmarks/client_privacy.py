"""What client-level differential privacy costs in accuracy: 10,000 clients with a few images each.

python -m benchmarks.client_privacy [digits mnist] [--seeds N] [--workers N]

Stride with and without ``privacy.unit = "client"``, in the same world with the same data: four regions, each client
with a random sample of images. ``digits`` has fewer images than clients, so that several clients have the same image;
what is protected is the client. Downloads MNIST unless ``SPYKER_DATA`` names a folder that has it.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import spyker
from spyker.config.scenario import Training
from spyker.tasks.built_in.digits import read
from spyker.tasks.task import Task

CLIENTS, IMAGES, TRAININGS = 10_000, 10, 20
WORLD: dict[str, Any] = {
    "world.clients": [CLIENTS // 4] * 4,
    "training.delay-ms": {"mean": 200, "std": 0, "floor": 10},
    "training.epochs": 2,
    "training.rate": 0.2,
    "duration": 5.0,
    "evaluation.interval": 1.0,
}
PRIVATE: dict[str, Any] = {
    "privacy.unit": "client",
    "privacy.epsilon": 8.0,
    "privacy.delta": 1e-6,
    "privacy.trainings": TRAININGS,
    "privacy.clip-norm": 0.5,
}
MNIST: dict[str, Any] = {
    "task.name": "mnist",
    "task.partition": "iid",
    "task.images-per-client": 6,
    "duration": 6.0,
    "evaluation.interval": 2.0,
}


def digits(clients: int, seed: int, training: Training) -> Task:
    """Return ``digits`` with a random sample of images for each client."""
    import torch

    from spyker.tasks.built_in.models import digits_cnn
    from spyker.tasks.torch_task import TorchTask

    all_images, all_labels, held_out = read()
    images, labels = torch.from_numpy(all_images / 16).float().unsqueeze(1), torch.from_numpy(all_labels).long()
    random = np.random.default_rng((seed, 0xD161))
    datasets = []
    for _ in range(clients):
        which = torch.from_numpy(random.choice(np.arange(held_out, len(labels)), IMAGES, replace=False))
        datasets.append((images[which], labels[which]))
    torch.manual_seed(seed)
    return TorchTask(digits_cnn(), datasets, (images[:held_out], labels[:held_out]), training, seed=seed)


def accuracy(task: str, settings: dict[str, Any], seed: int, workers: int) -> tuple[float, float]:
    """Return the final accuracy of a run and the highest ε of a client."""
    own: dict[str, Any] = MNIST if task == "mnist" else {}
    with tempfile.TemporaryDirectory() as folder:
        run = spyker.run(
            task=digits if task == "digits" else None,
            clients=CLIENTS,
            settings=WORLD | own | settings | {"seed": seed},
            out=Path(folder) / "run",
            workers=workers,
            progress=False,
        )
        summary = run.summary
        return summary["final"]["mean"], summary.get("privacy", {}).get("epsilon", float("inf"))


def main() -> None:
    """Run and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", default=["digits", "mnist"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--kernel", default="native", help="native needs spyker-fl-lab; torch takes much longer")
    args = parser.parse_args()
    print(f"{'task':>8} {'epsilon':>8}  accuracy, mean of {args.seeds} seeds (each)", flush=True)
    for task in args.tasks:
        for settings in ({}, PRIVATE):
            found = []
            for seed in range(1, args.seeds + 1):
                found.append(accuracy(task, settings | {"training.kernel": args.kernel}, seed, args.workers))
                print(f"    seed {seed}: {found[-1][0]:.4f}", file=sys.stderr, flush=True)
            scores = [score for score, _ in found]
            each = ", ".join(f"{score:.4f}" for score in scores)
            print(f"{task:>8} {max(e for _, e in found):>8.3f}  {statistics.mean(scores):.4f} ({each})", flush=True)


if __name__ == "__main__":
    main()
