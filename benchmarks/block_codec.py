"""Bytes of float32 that one core codes and decodes per second, in gigabytes; the bar is 1 GB/s."""

from __future__ import annotations

import time

import numpy as np

from benchmarks.measure import Result, in_turn
from spyker.compression.block_codec import CODES, NONE, decode, encode

SIZES = 21_840, 5_500_000  # parameters: 87 kB and 22 MB
BAR = 1.0  # GB/s, of encoding and decoding together


def measure() -> list[Result]:
    return [measure_code(code, size) for code in CODES if code != NONE for size in SIZES]


def measure_code(code: str, parameters: int) -> Result:
    vector = np.random.default_rng(0).normal(size=parameters).astype(np.float32)
    coded, repeat = encode(vector, code), max(1, 20_000_000 // parameters)

    def encoding() -> float:
        began = time.thread_time()
        for _ in range(repeat):
            encode(vector, code)
        return (time.thread_time() - began) / repeat

    def decoding() -> float:
        began = time.thread_time()
        for _ in range(repeat):
            decode(coded, code, parameters)
        return (time.thread_time() - began) / repeat

    in_turn(encoding, decoding, 1)
    there, back = in_turn(encoding, decoding, 7)
    speeds = {"encode_gb_per_s": vector.nbytes / there / 1e9, "decode_gb_per_s": vector.nbytes / back / 1e9}
    name = f"{code}, {parameters:,} parameters, GB/s"
    return Result(name, vector.nbytes / (there + back) / 1e9, BAR, details=speeds)
