"""Algorithm 1 of the paper, the client's side; and the client of algorithms that add up how far trainings went."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from spyker.protocol.messages import Action, Model, ServerMessage, ToServer, Train, Update
from spyker.vectors import Vector


class Client:
    """Client C_k: trains what its server sends and answers with the result."""

    __slots__ = ("id", "received", "server", "step")
    receives: ClassVar[tuple[type[ServerMessage], ...]] = (Model,)
    """What a server may say to one."""
    difference: ClassVar[bool] = False
    """Whether it answers with how far its training went, in place of a model."""

    def __init__(self, id: int, server: int) -> None:
        self.id = id
        self.server = server
        self.step = 0
        self.received: Model | None = None

    def handle(self, sender: int, message: ServerMessage) -> list[Action]:
        """Procedure LocalTraining(W_i, A_i, η_k), up to the training itself."""
        assert isinstance(message, Model)
        self.received = message
        step, self.step = self.step, self.step + 1
        return [Train(message.weights, message.rate, step, message.age)]

    def trained(
        self, weights: Vector, examples: int | None = None, metrics: Mapping[str, float] | None = None
    ) -> list[Action]:
        """The end of LocalTraining: send (W_k, A_i) to server S_i."""
        received, self.received = self.received, None
        if received is None:
            raise RuntimeError(f"client {self.id} finished a training that it had not begun")
        return [ToServer(self.server, Update(weights, received.age, received.version, examples, metrics))]


class DeltaClient(Client):
    """A client that answers with the difference between what it trained and what it was given.

    So its server need not remember what it gave to whom, and adds the answer to whatever its model has become.
    """

    __slots__ = ()
    difference = True

    def trained(
        self, weights: Vector, examples: int | None = None, metrics: Mapping[str, float] | None = None
    ) -> list[Action]:
        """The end of a training: send (W_k − W, A)."""
        given = weights if self.received is None else self.received.weights
        return super().trained(weights - given, examples, metrics)
