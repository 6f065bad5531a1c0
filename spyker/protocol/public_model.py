"""The public model of a server: what its clients know, so that they need to be sent differences only.

Theory of operation
-------------------
The server and its clients hold the same *public model* P, which has a number. A model W for a client is sent as the
coded difference W − P. Now and then the result, P plus the decoded difference, becomes the next public model: then the
difference from one number to the next is a *step*. A client is sent the steps since the number that it has, and the
difference from the last of them. What a step rounds off is part of the next difference, so no error grows.

If most clients are given the same model, as in a round, every model becomes public, and a client gets one step and
nothing else. If each client is given a model of its own, the public model is renewed once for ``RENEWED`` models per
client, because differences from an old one are large, and their steps coarse.

The server keeps no model per client: only the number of the public model that the client has. It counts as known once
the client has answered the task that named it. A client that is new, has reconnected, or has missed more than ``KEPT``
steps is sent P in full.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np

from spyker.compression.block_codec import Coded, decode, encode
from spyker.protocol.codec import CodedAs, MalformedMessage, Sizes
from spyker.vectors import Vector

KEPT = 7  # steps; one more coded vector fits in a message
MOST_CODED = KEPT + 1
RENEWED = 4  # models per client until the public model is renewed

NOTHING = np.empty(0, np.float32)


class Difference(NamedTuple):
    """A model as a client is sent it."""

    base: int
    """Number of the public model that the first step starts from."""
    number: int
    """Number of the public model after the steps; another coded vector, if there is one, leads to the model."""
    whole: Vector
    """Public model number ``base``; empty: the client has it."""
    coded: Coded
    """The steps, one after the other, and the difference from the last one to the model."""


class PublicModel:
    """The public model of one server."""

    def __init__(self, code: str, sizes: Sizes) -> None:
        self.code, self.sizes = code, sizes
        self.number = 0
        """Number of the present public model; 0 before the first one."""
        self._public = NOTHING
        self._steps: deque[Coded] = deque(maxlen=KEPT)
        self._model: Vector | None = None  # that was sent last
        self._decoded = NOTHING  # the same, as clients decode it
        self._rest: list[Coded] = []  # the difference from the public model to it, if it is another one
        self._sent = 0  # times that it was sent
        self._since = 0  # models sent since the public model was renewed

    def tell(self, model: Vector, known: int, clients: int) -> tuple[Difference, Vector]:
        """Return what to send to a client, and the model that it will train.

        Args:
            model: the model.
            known: number of the public model that the client has; 0: none.
            clients: number of clients that are given models.

        Raises:
            UncodableError: the difference from the public model is not finite or too large.

        """
        if model is not self._model:
            self._next(model, clients)
        self._sent += 1
        self._since += 1
        missed = self.number - known
        if known == 0 or missed > len(self._steps):
            return Difference(self.number, self.number, self._public, joined(self._rest)), self._decoded
        steps = list(self._steps)[len(self._steps) - missed :]
        return Difference(known, self.number, NOTHING, joined([*steps, *self._rest])), self._decoded

    def _next(self, model: Vector, clients: int) -> None:
        """Code another model, and make it public if it is time."""
        if self.number == 0:
            self.number, self._public, self._decoded = 1, model, model
        else:
            coded = encode(model - self._public, self.code, self.sizes.buffers)
            self._decoded = decode(coded, self.code, model.size, self.sizes.buffers, self._public)
            self._rest = [coded]
            if 2 * self._sent >= clients or self._since >= RENEWED * clients:
                self._steps.append(coded)
                self._public, self._rest, self._since = self._decoded, [], 0
                self.number += 1
        self._model, self._sent = model, 0


def joined(coded: list[Coded]) -> Coded:
    """Return coded vectors in a row."""
    return coded[0] if len(coded) == 1 else np.concatenate([np.empty(0, np.uint8), *coded])


class KnownModel:
    """The public model that a client has."""

    def __init__(self, code: str, sizes: Sizes) -> None:
        self.sizes = sizes
        self.number = 0
        self._mark = CodedAs(code, MOST_CODED)
        self._public = NOTHING

    def told(self, difference: Difference) -> Vector:
        """Return the model that a server has sent.

        Raises:
            MalformedMessage: it starts from a public model that this client does not have, or its parts do not fit.

        """
        base, number, whole, coded = difference
        if whole.size not in (0, self.sizes.parameters):
            raise MalformedMessage(f"a public model has {whole.size:,} numbers; {self.sizes.parameters:,} are expected")
        if not whole.size and (base == 0 or base != self.number):
            raise MalformedMessage(f"a difference from public model {base}, where {self.number} is known")
        parts = self._mark.parts(coded, self.sizes)
        if not 0 <= number - base <= len(parts) <= number - base + 1:
            raise MalformedMessage(f"{len(parts)} differences lead from public model {base} to {number}")
        model = whole if whole.size else self._public
        for part in parts[: number - base]:
            model = self._mark.decoded(part, self.sizes, model)
        self.number, self._public = number, model
        for part in parts[number - base :]:
            model = self._mark.decoded(part, self.sizes, model)
        return model
