"""One aggregation against a plain copy that moves as many bytes, and NumPy's mix against ``torch.lerp``.

Servers without PyTorch mix with NumPy. A mix reads two vectors and writes one: 12 bytes per parameter. The copy reads
and writes vectors half as long again. The aggregation is what a server does with a client's update: mix, hand out a
snapshot that is soon forgotten. With one thread the two mixes are compared by the time of that thread, so that other
processes do not count; with two threads, of which only ``torch.lerp`` uses the second, by the clock.
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
BESIDE = {21_840: None, 250_000: None, 5_500_000: 1.3, 100_000_000: None}  # 87 kB, 1 MB, 22 MB, 400 MB: bar, one thread
TIMES = {1: time.thread_time, 2: time.perf_counter}


def measure() -> list[Result]:
    torch.set_num_threads(1)
    nothing = torch.zeros(1, 1), torch.zeros(1).long()
    task = TorchTask(torch.nn.Linear(1, 1), [nothing], nothing, Training())
    results = [measure_size(parameters, task.mix, "mix", bar) for parameters, bar in SIZES.items()]
    results += [measure_size(parameters, mix, "NumPy mix", None) for parameters in SIZES]
    for threads in TIMES:
        torch.set_num_threads(threads)
        results += [measure_beside(parameters, task.mix, threads, bar) for parameters, bar in BESIDE.items()]
    torch.set_num_threads(1)
    return results


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


def measure_beside(parameters: int, lerp: Mix, threads: int, bar: float | None) -> Result:
    target, source, out = (np.full(parameters, value, np.float32) for value in (0, 1, 0))
    repeat, clock = max(1, 5_000_000 // parameters), TIMES[threads]

    def timed(kernel: Mix) -> float:
        began = clock()
        for _ in range(repeat):
            kernel(target, source, 0.1, out)
        return (clock() - began) / repeat

    numpy, torch_ = in_turn(lambda: timed(mix), lambda: timed(lerp), 25 if parameters < 100_000_000 else 7)
    name = f"NumPy mix / torch.lerp with {threads} thread{'s' * (threads > 1)}, {parameters:,} parameters"
    details = {"numpy_us": numpy * 1e6, "lerp_us": torch_ * 1e6}
    return Result(name, numpy / torch_, bar if threads == 1 else None, at_most=True, details=details)


def writable(vector: Vector) -> Vector:
    """Make a vector writable again after a snapshot was taken of it."""
    vector.flags.writeable = True
    return vector
