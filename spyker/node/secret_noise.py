"""Noise of deployed servers: it follows from the server's secret, which the operating system's generator has drawn.

Everything here is a function of its arguments, so that an event log can be replayed.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from spyker.node.x25519_seals import aes_mask
from spyker.privacy.client_noise import NoiseStream

DERIVATION = b"spyker: the noise of released sums\0"


def secret_noise(secret: bytes) -> Callable[[int], NoiseStream]:
    """Return what the noise of a server follows from: key streams of AES-256, one key per label."""
    key = hmac.digest(secret, DERIVATION, "sha256")

    def stream(label: bytes, count: int) -> npt.NDArray[np.uint64]:
        return aes_mask(hmac.digest(key, label, "sha256"), 2 * count).view(np.uint64)

    return lambda server: stream
