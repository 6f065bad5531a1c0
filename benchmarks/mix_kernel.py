"""One aggregation against a plain copy that moves as many bytes.

A mix reads two vectors and writes one: 12 bytes per parameter. The copy reads and writes vectors half as long again.
The aggregation is what a server does with a client's update: mix, hand out a snapshot that is soon forgotten.
"""

from __future__ import annotations

import time

import numpy as np

from benchmarks.measure import Result, in_turn
from spyker.protocol.weights import Weights

SIZES = {21_840: None, 5_500_000: 0.7, 100_000_000: 0.7}  # parameters: bar


def measure() -> list[Result]:
    return [measure_size(parameters, bar) for parameters, bar in SIZES.items()]


def measure_size(parameters: int, bar: float | None) -> Result:
    weights = Weights(np.zeros(parameters, np.float32))
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
    return Result(f"mix of {parameters:,} parameters / copy", copying / mixing, bar, details=details)
