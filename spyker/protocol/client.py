"""Clients: Algorithm 1 of the paper, and the variant that sends differences instead of models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from spyker.compression.block_codec import NONE
from spyker.protocol.client_coder import ClientCoder
from spyker.protocol.coded_messages import with_coded
from spyker.protocol.messages import Action, Model, ServerMessage, ToServer, Train, Update
from spyker.vectors import Vector


class Client:
    """Client C_k: trains each model that its server sends and returns the result."""

    __slots__ = ("coder", "id", "received", "server", "step")
    receives: ClassVar[tuple[type[ServerMessage], ...]] = (Model,)
    """Message classes that the client accepts."""
    difference: ClassVar[bool] = False
    """Whether updates are differences from the received model instead of models."""

    def __init__(self, id: int, server: int) -> None:
        self.id = id
        self.server = server
        self.step = 0
        self.received: Model | None = None
        self.coder: ClientCoder | None = None
        """Decodes models and codes updates; ``None``: vectors are not compressed."""

    @property
    def kinds(self) -> list[type[ServerMessage]]:
        """Message classes that arrive, coded or not."""
        code = NONE if self.coder is None else self.coder.settings.models
        return list(with_coded(self.receives, code).values())

    @property
    def ready(self) -> bool:
        """Whether the client has everything that it needs to answer."""
        return True

    def handle(self, sender: int, message: ServerMessage) -> list[Action]:
        """Procedure LocalTraining(W_i, A_i, η_k), up to the training itself."""
        if self.coder is not None:
            message = self.coder.decode(message)
        assert isinstance(message, Model)
        self.received = message
        step, self.step = self.step, self.step + 1
        return [Train(message.weights, message.rate, step, message.age)]

    def trained(
        self,
        weights: Vector,
        examples: int | None = None,
        metrics: Mapping[str, float] | None = None,
        evaluation: Mapping[str, float] | None = None,
    ) -> list[Action]:
        """The end of LocalTraining: send (W_k, A_i) to server S_i."""
        received, self.received = self.received, None
        if received is None:
            raise RuntimeError(f"client {self.id}: trained() was called without a model")
        update = Update(weights, received.age, received.version, examples, metrics, evaluation)
        if self.coder is not None:
            update = self.coder.encode(update, None if self.difference else received.weights)
        return [ToServer(self.server, update)]


class DeltaClient(Client):
    """A client that sends the difference between the trained and the received model.

    Its server need not store the model of each task: it adds the difference to its current model. Trained weights that
    are writable are the client's own, and the difference replaces them.
    """

    __slots__ = ()
    difference = True

    def trained(
        self,
        weights: Vector,
        examples: int | None = None,
        metrics: Mapping[str, float] | None = None,
        evaluation: Mapping[str, float] | None = None,
    ) -> list[Action]:
        """The end of a training: send (W_k − W, A)."""
        given = weights if self.received is None else self.received.weights
        difference = np.subtract(weights, given, weights if weights.flags.writeable else None)
        return super().trained(difference, examples, metrics, evaluation)
