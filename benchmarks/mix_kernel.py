"""One aggregation against a plain copy that moves as many bytes.

The mix is that of PyTorch tasks; that of tasks without PyTorch, in NumPy, stands beside it. A mix reads two vectors and
writes one: 12 bytes per parameter. The copy reads and writes vectors half as long again. The aggregation is what a
server does with a client's update: mix, hand out a snapshot that is soon forgotten.
"""

from __future__ import annotations

import itertools
import time

import numpy as np
import torch

from benchmarks.measure import Result, in_turn
from spyker.config.scenario import Training
from spyker.protocol.weights import Weights
from spyker.tasks.torch_task import TorchTask
from spyker.vectors import Mix, Vector, mix

SIZES = {21_840: None, 5_500_000: 0.7, 100_000_000: 0.7}  # parameters: bar


def measure() -> list[Result]:
    torch.set_num_threads(1)
    nothing = torch.zeros(1, 1), torch.zeros(1).long()
    task = TorchTask(torch.nn.Linear(1, 1), [nothing], nothing, Training())
    results = [measure_size(parameters, task.mix, "mix", bar) for parameters, bar in SIZES.items()]
    return results + [measure_size(parameters, mix, "NumPy mix", None) for parameters in SIZES]


def measure_size(parameters: int, kernel: Mix, name: str, bar: float | None) -> Result:
    # As in a deployed server: snapshots are not overwritten, and results go to the buffer of an older model.
    memory = itertools.cycle([np.zeros(parameters, np.float32), np.zeros(parameters, np.float32)])
    weights = Weights(np.zeros(parameters, np.float32), kernel, lambda _: writable(next(memory)))
    update = np.ones(parameters, np.float32)
    source = np.ones(parameters * 3 // 2, np.float32)
    target = np.zeros_like(source)
    repeat = max(1, 20_000_000 // parameters)

    def aggregate() -> float:
        began = time.perf_counter()
        for _ in range(repeat):
            weights.mix(update, 0.1)
            weights.snapshot()
        return (time.perf_counter() - began) / repeat

    def copy() -> float:
        began = time.perf_counter()
        for _ in range(repeat):
            np.copyto(target, source)
        return (time.perf_counter() - began) / repeat

    in_turn(aggregate, copy, 2)  # touch all memory once
    mixing, copying = in_turn(aggregate, copy, 7)
    details = {"mix_gb_per_s": 12 * parameters / mixing / 1e9, "copy_gb_per_s": 12 * parameters / copying / 1e9}
    return Result(f"{name} of {parameters:,} parameters / copy", copying / mixing, bar, details=details)


def writable(vector: Vector) -> Vector:
    """Make a vector writable again after a snapshot was taken of it."""
    vector.flags.writeable = True
    return vector
