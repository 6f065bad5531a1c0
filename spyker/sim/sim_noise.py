"""Noise of simulated servers: it follows from the run's seed, is cheap, and protects nobody."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from spyker.privacy.client_noise import NoiseStream

KEY_BYTES = 16


def sim_noise(seed: int) -> Callable[[int], NoiseStream]:
    """Return what the noise of each server follows from."""

    def of_server(server: int) -> NoiseStream:
        def stream(label: bytes, count: int) -> npt.NDArray[np.uint64]:
            key = hashlib.blake2b(label, key=b"%d %d" % (seed, server), digest_size=KEY_BYTES).digest()
            numbers: npt.NDArray[np.uint64] = np.random.Philox(key=int.from_bytes(key, "little")).random_raw(count)
            return numbers

        return stream

    return of_server
