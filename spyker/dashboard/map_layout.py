"""Layout of regions on the map: distances approximate latencies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Points: TypeAlias = npt.NDArray[np.float64]
CLOSEST = 0.42  # minimum distance of two regions, as a share of the mean distance
ROUNDS = 60  # iterations that enforce it


def place(latency: Sequence[Sequence[float]]) -> list[tuple[float, float]]:
    """Return a point in the unit square for each region, by classical multidimensional scaling of the latencies.

    Equidistant regions are on a circle, with the first at the top.
    """
    count = len(latency)
    if count == 1:
        return [(0.5, 0.5)]
    if count == 2:
        return [(0.0, 0.5), (1.0, 0.5)]
    far = (np.array(latency, float) + np.array(latency, float).T) / 2
    np.fill_diagonal(far, 0.0)
    between = far[np.triu_indices(count, 1)]
    if not np.isfinite(far).all() or np.ptp(between) <= 1e-9 * max(1e-12, float(between.max())):
        return circle(count)
    centre = np.eye(count) - 1 / count
    values, vectors = np.linalg.eigh(-0.5 * centre @ (far**2) @ centre)
    points = vectors[:, [-1, -2]] * np.sqrt(np.maximum(values[[-1, -2]], 0.0))
    for axis in (0, 1):  # choose one of the mirror images: the first region is at the top left
        if points[0, axis] > 0:
            points[:, axis] *= -1
    points = spread(points)
    low, size = points.min(axis=0), np.ptp(points, axis=0)
    points = (points - low - size / 2) / float(size.max()) + 0.5
    return [(float(x), float(y)) for x, y in points]


def circle(count: int) -> list[tuple[float, float]]:
    """Return points on a circle, clockwise from the top."""
    turns = [2 * math.pi * i / count for i in range(count)]
    return [(0.5 + 0.5 * math.sin(turn), 0.5 - 0.5 * math.cos(turn)) for turn in turns]


def spread(points: Points) -> Points:
    """Push regions apart that are too close to each other."""
    apart = np.linalg.norm(points[:, None] - points[None], axis=2)
    closest = CLOSEST * apart[np.triu_indices(len(points), 1)].mean()
    for _ in range(ROUNDS):
        ways = points[:, None] - points[None]
        apart = np.linalg.norm(ways, axis=2)
        np.fill_diagonal(apart, np.inf)
        near = np.maximum(0.0, closest - apart)
        if not near.any():
            break
        same = (
            np.where(apart < 1e-9, 1.0, 0.0)[..., None]
            * np.sign(np.arange(len(points))[:, None] - np.arange(len(points)))[..., None]
        )
        unit = ways / np.maximum(apart, 1e-9)[..., None] + same
        points = points + 0.5 * (near[..., None] * unit).sum(axis=1)
    return points
