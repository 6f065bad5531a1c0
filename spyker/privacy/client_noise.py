"""Client-level differential privacy: the sum of a round's clipped updates, and its release with noise.

Theory of operation
-------------------
A server clips each update to a public norm C and adds all updates of a round up. Once per round it releases the sum
with Gaussian noise of z·C in each coordinate. Whatever follows uses the released sum only. Replacing all updates of one
client by zeros changes every sum by at most C, as each update is in at most one sum and each sum has at most one update
of a client. So a client that took part in T releases is protected as by one Gaussian mechanism with multiplier z/√T.

Updates are rounded to a grid, the sum is an integer of 64 bits, and the noise is rounded to the same grid. A rounded
sum plus rounded noise is the same as the sum plus noise, rounded. So what is released are multiples of the grid,
whatever the updates were: the low bits of floating-point numbers disclose nothing (Mironov 2012). Clipping leaves room
for the rounding.

The noise of a sum follows from a secret, the server, the number of the release, and the sum itself. A server that
crashed and releases the same sum again adds the same noise to it, so that repetitions do not average it away. Two sums
never have the same noise, so that their difference does not cancel it, even if a server was restored from a backup and
repeats a round with other updates.

A round's sum is not part of a checkpoint: after a restart its clients count as if they had sent zeros. A released sum
that a restored checkpoint does not know of therefore shares no update with a later one.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from spyker.privacy.accounting import Booking, Mechanism, epsilon_of
from spyker.vectors import BLOCK, Vector

Integers: TypeAlias = npt.NDArray[np.int64]
NoiseStream: TypeAlias = Callable[[bytes, int], npt.NDArray[np.uint64]]
"""Returns pseudo-random integers of 64 bits that follow from a secret and a label."""

GRID_BITS = 30  # the grid is this many bits finer than the clipping norm
ROUNDING = 2.0**-20  # relative, of norms in float32
_LABEL = struct.Struct("<II")


@dataclass(frozen=True, slots=True)
class ClientPrivacy:
    """The settings of client-level differential privacy, identical for all servers."""

    clip_norm: float
    """C: the norm that updates are clipped to."""
    noise_multiplier: float
    """z: standard deviation of the noise as a multiple of ``clip_norm``."""
    participations: int
    """Number of releases that a client may take part in."""
    expected: Mapping[int, int]
    """Number of clients that each server is planned to have."""
    delta: float
    """δ, with which ε is reported."""
    stream: Callable[[int], NoiseStream]
    """Returns what a server's noise follows from."""

    @property
    def grid(self) -> float:
        """The distance between two multiples of the grid, a power of two."""
        return math.ldexp(1.0, math.floor(math.log2(self.clip_norm)) - GRID_BITS)


def clip_target(clip_norm: float, size: int, grid: float) -> float:
    """Return the norm to clip to, such that it is at most ``clip_norm`` after rounding to a grid."""
    return clip_norm * (1 - ROUNDING) - 0.5 * math.sqrt(size) * grid


def clipped(update: Vector, clip_norm: float, grid: float, multiple: float = 1.0) -> Integers:
    """Return ``multiple`` times the clipped update in multiples of the grid; zeros if it is not finite."""
    square = math.fsum(
        float(np.square(update[start : start + BLOCK], dtype=np.float64).sum())
        for start in range(0, update.size, BLOCK)
    )
    coded = np.zeros(update.size, np.int64)
    if not math.isfinite(square):
        return coded
    target = clip_target(clip_norm, update.size, grid)
    factor = multiple * min(1.0, target / max(math.sqrt(square), 1e-300)) / grid
    for start in range(0, update.size, BLOCK):
        coded[start : start + BLOCK] = np.rint(update[start : start + BLOCK].astype(np.float64) * factor)
    return coded


def normals(bits: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    """Return as many standard normal numbers as there are integers, an even number, by Box and Muller's method."""
    units = ((bits >> np.uint64(11)).astype(np.float64) + 1) * 2.0**-53  # in (0, 1]
    half = units.size // 2
    radius, angle = np.sqrt(-2 * np.log(units[:half])), 2 * math.pi * units[half:]
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])


class NoisySums:
    """The sum of a server's present round, and what was released."""

    def __init__(self, server: int, size: int, privacy: ClientPrivacy) -> None:
        self.released = 0  # number of releases
        self.participations: dict[int, int] = {}  # number of sums that each client is in
        self.counted: set[int] = set()  # clients in the present sum
        self._server, self._size, self._privacy = server, size, privacy
        self._stream = privacy.stream(server)
        self._total: Integers | None = None

    @property
    def deviation(self) -> float:
        """Standard deviation of the noise in each coordinate of a released sum."""
        return self._privacy.noise_multiplier * self._privacy.clip_norm

    def epsilon(self, participations: int) -> float:
        """Return ε of a client that is in this many sums."""
        mechanism = Mechanism(self._privacy.noise_multiplier, 1.0, 1)
        return epsilon_of([Booking(mechanism, participations)], self._privacy.delta)

    def admits(self, client: int) -> bool:
        """Return whether an update of a client may be in the present sum: its first one, within its budget."""
        return client not in self.counted and self.participations.get(client, 0) < self._privacy.participations

    def count(self, client: int) -> None:
        """Note that an update of a client is in the present sum."""
        self.counted.add(client)
        self.participations[client] = self.participations.get(client, 0) + 1

    def add(self, update: Vector, multiple: float) -> None:
        """Clip an update and add it to the present sum; it counts ``multiple`` times, at most once."""
        coded = clipped(update, self._privacy.clip_norm, self._privacy.grid, min(1.0, multiple))
        if self._total is None:
            self._total = coded
        else:
            self._total += coded

    def close(self) -> list[int]:
        """End the present sum, and return the clients in it."""
        clients, self.counted = sorted(self.counted), set()
        return clients

    def release(self, opened: npt.NDArray[np.float64] | None = None) -> Vector:
        """Return the sum with noise.

        Args:
            opened: the opened sum of masked updates; ``None``: the sum of the updates that were added.

        """
        grid = self._privacy.grid
        if opened is not None:
            total = np.rint(opened / grid).astype(np.int64)
        elif self._total is not None:
            total, self._total = self._total, None
        else:  # its updates were lost in a restart
            total = np.zeros(self._size, np.int64)
        self.released += 1
        label = _LABEL.pack(self._server, self.released) + hashlib.sha256(total.tobytes()).digest()
        count = total.size + total.size % 2
        noise = normals(self._stream(label, count))[: total.size]
        noise *= self.deviation / grid
        total = total + np.rint(noise, out=noise).astype(np.int64)
        return (total * grid).astype(np.float32)

    # --- Checkpoints -------------------------------------------------------------------------------------------------

    def state(self) -> Any:
        """Return the state for a checkpoint, without the present sum."""
        return [self.released, self.participations, self.counted]

    def restore(self, state: Any) -> None:
        """Restore the state of a checkpoint. The updates of the present sum are lost, and count as zeros."""
        self.released, self.participations, self.counted = state
        self._total = None
