"""Masked updates of simulated clients, and a home server's side that adds them up."""

from __future__ import annotations

from typing import Any

import numpy as np

from spyker.privacy.batches import Batch
from spyker.privacy.mask_helper import Asked, MaskHelper
from spyker.privacy.masking import EXTRAS, MaskedSums, Terms
from spyker.protocol.masked_client import MaskingClient
from spyker.protocol.masked_server import asked, open_request
from spyker.protocol.messages import MaskedModel, MaskedUpdate
from spyker.sim.sim_seals import SimOpener, SimSealer
from spyker.vectors import Vector

HOME, HELPER, SIZE = 0, 1, 5


def client(k: int, examples: int = 1, home: int = HOME, life: int = 0, buffers: int = 0) -> MaskingClient:
    """A client that masks its updates."""
    return MaskingClient(k, home, SimSealer(7, k, life), examples, buffers)


def train(
    who: MaskingClient, difference: Vector, terms: Terms, version: int = 0, given: Vector | None = None
) -> MaskedUpdate:
    """What a client sends whose training moves the model by ``difference``."""
    given = np.zeros_like(difference) if given is None else given
    who.handle(who.server, MaskedModel(given, 0.0, version, 0.1, *terms))
    (action,) = who.trained(given + difference)
    assert isinstance(action.message, MaskedUpdate)
    return action.message


class Home:
    """A home server's masked sums, and the helper that opens them."""

    def __init__(self, threshold: int = 3, size: int = SIZE, buffers: int = 0) -> None:
        self.sums = MaskedSums(size, buffers, 1.0)
        self.threshold = threshold
        self.helper = MaskHelper(HELPER, threshold, SimOpener(HELPER))
        self.size = size

    def terms(self, bound: float = 2.0, clients: int = 8, **changed: Any) -> Terms:
        """What the server tells clients."""
        terms = Terms(HELPER, self.sums.scale_of(bound, clients), bound, 1.0, 1.0)._replace(**changed)
        self.sums.issue(terms)
        return terms

    def add(self, k: int, update: MaskedUpdate, times: int = 16) -> bool:
        """Add an update."""
        terms = Terms(update.helper, update.scale, update.bound, update.bound, update.largest)
        return self.sums.add(k, update.masked, update.extra, update.seal, terms, update.weight, times)

    def batches(self) -> list[tuple[int, Batch]]:
        """What is asked for now."""
        return [(number, batch) for number, batch in self.sums.close(self.threshold) if number is not None]

    def ask(self) -> tuple[int, Asked]:
        """The one request."""
        ((number, batch),) = self.batches()
        return number, asked(open_request(number, batch))

    def open(self) -> bool:
        """Open everything; return whether all sums were accepted."""
        good = True
        for number, batch in self.batches():
            masks = self.helper.masks(HOME, asked(open_request(number, batch)), self.size + EXTRAS)
            good &= self.sums.subtract(number, masks[: self.size], masks[self.size :])
        return good
