"""Fixed-point numbers modulo 2³², in which masked updates are added.

A number x is represented by ``round(x · 2^scale)``. Sums are exact, in any order, as long as they stay within ±2³¹.
"""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from spyker.vectors import BLOCK, Vector

Residues: TypeAlias = npt.NDArray[np.uint32]
"""Integers modulo 2³²."""

LARGEST_SUM = 1 << 30  # a factor of two below the range, for sums that exceed the bounds
LOWEST_SCALE, HIGHEST_SCALE = -64, 64


def scale_for(bound: float, terms: int) -> int:
    """Return the largest scale with which ``terms`` numbers of at most ``bound`` can be added."""
    if not 0 < bound < math.inf:
        return 0
    return max(LOWEST_SCALE, min(HIGHEST_SCALE, math.floor(math.log2(LARGEST_SUM / terms) - math.log2(bound))))


def encode(vector: Vector, factor: float, scale: int) -> Residues:
    """Return ``factor · vector`` in fixed point; what is too large for the range is limited to it."""
    coded = np.empty(vector.size, np.uint32)
    for start in range(0, vector.size, BLOCK):
        block = vector[start : start + BLOCK].astype(np.float64)
        block *= math.ldexp(factor, scale)
        np.rint(block, out=block)
        np.clip(block, -LARGEST_SUM, LARGEST_SUM, out=block)
        coded[start : start + BLOCK] = block.astype(np.int64).astype(np.uint32)
    return coded


def decode(total: Residues, factor: float, scale: int) -> Vector:
    """Return ``factor`` times the sum that the residues represent."""
    decoded = np.empty(total.size, np.float32)
    for start in range(0, total.size, BLOCK):
        signed = total[start : start + BLOCK].view(np.int32)
        decoded[start : start + BLOCK] = signed * math.ldexp(factor, -scale)
    return decoded


def accumulate(total: Residues, coded: Residues, times: int) -> None:
    """Add ``times · coded`` to ``total``, in place."""
    if times == 1:
        np.add(total, coded, out=total)
        return
    for start in range(0, total.size, BLOCK):
        total[start : start + BLOCK] += coded[start : start + BLOCK] * np.uint32(times)
