"""What a client process keeps: the task that it was given, until its answer is known to have arrived.

If the connection breaks, or the server is restarted, the training goes on, and when the client comes back it offers
what it holds. The server's next task is the proof that the answer arrived, or is not wanted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spyker.protocol.client import Client
from spyker.protocol.messages import ClientMessage, ServerMessage, ToServer, Train
from spyker.vectors import Vector


@dataclass(slots=True, eq=False)
class PendingTask:
    """A task that a client holds: at work, or done and not known to have arrived."""

    place: Any
    """Who gave it."""
    task_token: bytes
    order: Train
    answer: ClientMessage | None = None
    offered: bool = False
    """Whether the answer went out on the present connection."""


class PendingUpdate:
    """Decides for one client. It is told what happens, and says what to train and what to answer."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.task: PendingTask | None = None

    def connect(self, place: Any) -> bytes | None:
        """A connection is being made; the task_token to offer there. Another server knows nothing of a task."""
        if self.task is not None and self.task.place != place:
            self.drop()
        if self.task is None:
            return None
        self.task.offered = False
        return self.task.task_token

    def welcomed(self, server: int, *, keep: bool) -> None:
        """The server that let us in wants the answer to the task that we hold, or does not."""
        self.client.server = server
        if not keep:
            self.drop()

    def assigned(self, place: Any, task_token: bytes, message: ServerMessage) -> PendingTask:
        """There is a new task; whatever was held has arrived, or is not wanted."""
        self.drop()
        (order,) = self.client.handle(self.client.server, message)
        assert isinstance(order, Train)
        self.task = PendingTask(place, task_token, order)
        return self.task

    def trained(
        self,
        task: PendingTask,
        weights: Vector,
        examples: int | None = None,
        metrics: Mapping[str, float] | None = None,
    ) -> None:
        """A training is done; it may be one that nobody wants any more."""
        if task is self.task:
            (action,) = self.client.trained(weights, examples, metrics)
            assert isinstance(action, ToServer)
            assert isinstance(action.message, ClientMessage)
            task.answer = action.message

    def offer(self) -> tuple[bytes, ClientMessage] | None:
        """The task_token and the answer to be sent now, once for each connection."""
        task = self.task
        if task is None or task.answer is None or task.offered:
            return None
        task.offered = True
        return task.task_token, task.answer

    def drop(self) -> None:
        """Hold nothing any more."""
        self.task = None
