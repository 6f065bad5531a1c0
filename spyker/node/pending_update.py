"""The client's side: a client keeps its task until its update is known to have arrived.

If the connection breaks, or the server restarts, the training goes on, and the client offers the update when it
reconnects. The server's next task proves that the update arrived, or is not wanted.
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
    """A task that a client works on, or whose update is not known to have arrived."""

    place: Any
    """The server, or its address, that issued the task."""
    task_token: bytes
    order: Train
    answer: ClientMessage | None = None
    offered: bool = False
    """Whether the update was sent over the present connection."""


class PendingUpdate:
    """The state machine of one client process, without I/O."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.task: PendingTask | None = None

    def connect(self, place: Any) -> bytes | None:
        """Return the token of the task that is held for this server, if any. A task of another server is dropped."""
        if self.task is not None and self.task.place != place:
            self.drop()
        if self.task is None:
            return None
        self.task.offered = False
        return self.task.task_token

    def welcomed(self, server: int, *, keep: bool) -> None:
        """The server has welcomed the client. Unless ``keep``, it does not want the update."""
        self.client.server = server
        if not keep:
            self.drop()

    def assigned(self, place: Any, task_token: bytes, message: ServerMessage) -> PendingTask:
        """Replace the task that is held by a new one."""
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
        evaluation: Mapping[str, float] | None = None,
    ) -> None:
        """Keep the result of a training, unless its task was replaced meanwhile."""
        if task is self.task:
            (action,) = self.client.trained(weights, examples, metrics, evaluation)
            assert isinstance(action, ToServer)
            assert isinstance(action.message, ClientMessage)
            task.answer = action.message

    def offer(self) -> tuple[bytes, ClientMessage] | None:
        """Return the token and the update to be sent now, once per connection."""
        task = self.task
        if task is None or task.answer is None or task.offered:
            return None
        task.offered = True
        return task.task_token, task.answer

    def drop(self) -> None:
        """Drop the task."""
        self.task = None
