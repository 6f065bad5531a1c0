"""Client updates per second of Spyker's FedAvg and of Spyker's Spyker over those of Flower's FedAvg.

Flower's Ray simulation and Spyker's workers have the same cores, model, client datasets, batch size and epochs, and all
100 clients take part in every round: 600 images per client, and no training at all. With 32 images, a single batch, the
training itself says how fast anybody can be: there Spyker is held to bare PyTorch loops, and Flower is among the
details. Flower's side trains as its own examples do, in PyTorch's default layout; what it does in Spyker's
channels-last layout is among the details, too. Flower is installed, once, in an environment of its own in
``runs/bench/``. All sides leave out the time they take to start.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch

from benchmarks.measure import RESULTS, Result, in_turn
from benchmarks.rates import CLIENTS, bare_rate, spyker_rate
from spyker.config.scenario import load
from spyker.engines.start_engine import available_cores
from spyker.tasks.registry import resolve, task_spec
from spyker.tasks.torch_task import TorchTask

FLOWER = "flwr[simulation]==1.41.0"
ALGORITHMS = ("fedavg", "spyker")
# images per client: (bar, rounds of Flower, updates of Spyker)
SIZES = {600: (1.5, 3, 300), 0: (20.0, 8, 20_000)}
FEW, FEW_BAR, FEW_ROUNDS, FEW_UPDATES = 32, 0.95, 6, 3000
TIMES, FEW_TIMES = 2, 3


def environment() -> Path:
    """Return the Python interpreter with Flower."""
    python = RESULTS / "flower" / "bin" / "python"
    if not (RESULTS / "flower" / "installed").exists():
        subprocess.run([sys.executable, "-m", "venv", RESULTS / "flower"], check=True)
        packages = [FLOWER, f"torch=={torch.__version__.split('+')[0]}", f"numpy=={np.__version__}"]
        subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
        (RESULTS / "flower" / "installed").touch()
    return python


def scenario_keys(images: int) -> dict[str, object]:
    """Return the scenario for a number of images per client."""
    if not images:
        return {"task.name": "benchmarks.idle:make"}
    return {"task.name": "mnist", "task.partition": "iid", "task.images-per-client": images}


def export(images: int) -> Path:
    """Write Spyker's client datasets to files for Flower."""
    folder = RESULTS / f"flower-data-{images}"
    folder.mkdir(parents=True, exist_ok=True)
    inputs, labels = np.zeros((CLIENTS, 0)), np.zeros((CLIENTS, 0), np.int64)
    if images:
        task = task_spec(resolve(load(None, scenario_keys(images), clients=CLIENTS))).make()
        assert isinstance(task, TorchTask)
        pairs = [task.clients[k].read() for k in range(CLIENTS)]
        inputs, labels = (np.stack([pair[i].numpy() for pair in pairs]) for i in (0, 1))
    np.save(folder / "images.npy", inputs)
    np.save(folder / "labels.npy", labels)
    return folder


def flower_rate(images: int, rounds: int, *, channels_last: bool = False) -> float:
    """Return Flower's updates per second, with PyTorch's default layout of images or with Spyker's."""
    folder = export(images)
    here = Path(__file__).parent
    settings = {"BENCH_FOLDER": folder, "BENCH_ROUNDS": rounds, "BENCH_CORES": available_cores(), "PYTHONPATH": here}
    settings["BENCH_CHANNELS_LAST"] = int(channels_last)
    quiet = {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}
    env = os.environ | quiet | {key: str(value) for key, value in settings.items()}
    with (folder / "flower.log").open("w") as log:
        subprocess.run([environment(), here / "flower_app.py"], check=True, stdout=log, stderr=log, env=env)
    return float((folder / "flower-rate.txt").read_text())


def measure() -> list[Result]:
    environment()
    results = []
    for images, (bar, rounds, updates) in SIZES.items():
        what = f"{images} images" if images else "no training"
        for algorithm in ALGORITHMS:
            keys = scenario_keys(images) | {"algorithm": algorithm}

            def ours(keys: dict[str, object] = keys, updates: int = updates) -> float:
                return spyker_rate(keys, available_cores(), updates, max(CLIENTS, updates // 5))

            def theirs(images: int = images, rounds: int = rounds) -> float:
                return flower_rate(images, rounds)

            us, them = in_turn(ours, theirs, TIMES)
            details = {"spyker_updates_per_s": us, "flower_updates_per_s": them}
            if images:
                details["flower_channels_last_updates_per_s"] = flower_rate(images, rounds, channels_last=True)
                # upper bound: training without a framework
                details["bare_updates_per_s"] = bare_rate(keys, available_cores(), updates, updates // 5)
            results.append(Result(f"{algorithm} / Flower, {what}", us / them, bar, details=details))
    flower = {
        "flower_updates_per_s": flower_rate(FEW, FEW_ROUNDS),
        "flower_channels_last_updates_per_s": flower_rate(FEW, FEW_ROUNDS, channels_last=True),
    }
    return results + [few_images(algorithm, flower) for algorithm in ALGORITHMS]


def few_images(algorithm: str, flower: dict[str, float]) -> Result:
    """Measure the share of the machine's training speed if a training is one batch."""
    keys = scenario_keys(FEW) | {"algorithm": algorithm}
    us, bare = in_turn(
        lambda: spyker_rate(keys, available_cores(), FEW_UPDATES, FEW_UPDATES // 5),
        lambda: bare_rate(keys, available_cores(), FEW_UPDATES, FEW_UPDATES // 5),
        FEW_TIMES,
    )
    details = {"spyker_updates_per_s": us, "bare_updates_per_s": bare, **flower}
    return Result(f"{algorithm} / bare PyTorch, {FEW} images", us / bare, FEW_BAR, details=details)
