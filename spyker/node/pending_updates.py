"""The client's side: a client keeps every update until a checkpoint of its server holds it.

If the connection breaks, or the server restarts, the training goes on. When the client reconnects, it shows the tokens
of the tasks whose updates it keeps. The server says which of these updates it has and which are on its disk, and asks
for the missing ones, one at a time and in the order of their tasks. So a crash of the server loses no update of a
client that runs on, and each update is still applied at most once.

An update belongs to the server that issued its task. No other server is offered it: the first one may have applied it.
A client that turns to another server keeps its updates until it returns.

Under client-level differential privacy no update is sent twice, as a server that crashed may have used it: the client
drops what it has sent when it connects again, and trains the next task.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from spyker.protocol.client import Client
from spyker.protocol.messages import ClientMessage, ServerMessage, ToServer, Train
from spyker.vectors import Vector

UNSAVED_BYTES = 64 << 20  # of a client's updates that its server has and has not saved
FEWEST_UNSAVED, MOST_UNSAVED = 2, 64


def most_unsaved(parameters: int) -> int:
    """Return how many unsaved updates a client may have at a server before it waits for a checkpoint."""
    return max(FEWEST_UNSAVED, min(MOST_UNSAVED, UNSAVED_BYTES // (4 * max(1, parameters))))


@dataclass(slots=True, eq=False)
class PendingTask:
    """A task that a client works on, or whose update is not known to be saved."""

    place: Any
    """The server, or its address, that issued the task."""
    number: int
    task_token: bytes
    order: Train | None
    """What to train; ``None`` once that is done."""
    answer: ClientMessage | None = None
    sent: bool = False
    """Whether the server has the update, or it was sent over the present connection."""
    booked: int = 0
    """Number of the training in the client's privacy ledger; 0: it has none."""
    left: bool = False
    """Whether the client has left the server although it could reach it."""


class PendingUpdates:
    """The state machine of one client process, without I/O."""

    def __init__(self, client: Client, *, resends: bool = True) -> None:
        """Create the state of a client; with ``resends``, it sends updates again that its server has lost."""
        self.client, self._resends = client, resends
        self.tasks: list[PendingTask] = []
        """The tasks of all servers, each server's in their order. At most the last one has no update yet."""
        self._place: Any = None
        self._asked = False  # the server waits for an update
        self._offered: PendingTask | None = None  # the last one whose update was sent over the present connection
        self._limit = MOST_UNSAVED

    @property
    def task(self) -> PendingTask | None:
        """The task that the client trains, or whose update it has not sent."""
        return next((task for task in self._here() if not task.sent), None)

    @property
    def elsewhere(self) -> set[Any]:
        """The servers, other than the present one, whose loss may have cost updates of this client."""
        return {task.place for task in self.tasks if task.place != self._place and not task.left}

    def holds(self, place: Any) -> bool:
        """Return whether the client has a task of this server, or keeps updates for it."""
        return any(task.place == place for task in self.tasks)

    def connect(self, place: Any) -> list[bytes]:
        """Return the tokens of the tasks that are held for this server. A training for another server is dropped."""
        if place != self._place:
            self.tasks = [task for task in self.tasks if task.place == place or task.answer is not None]
        self._place, self._asked, self._offered = place, False, None
        if not self._resends:
            self.tasks = [task for task in self.tasks if task.place == place and not task.sent]
        for task in self._here():
            task.sent = task.left = False
        return [task.task_token for task in self._here()]

    def welcomed(self, server: int, *, keep: bool, received: int = 0, saved: int = 0, ask: bool = False) -> None:
        """The server has welcomed the client.

        Args:
            server: number of the server.
            keep: whether it knows the tasks that the client holds; if not, their updates are dropped.
            received: number of the last task whose update it has.
            saved: number of the last task whose update is on its disk.
            ask: whether it asks for the next update.

        """
        self.client.server = server
        if not keep:
            self._keep(lambda task: False)
        for task in self._here():
            task.sent = task.number <= received
        self.told(saved, ask=ask)

    def told(self, saved: int, *, ask: bool = False) -> None:
        """The server's checkpoint holds the updates up to this task; with ``ask``, the server asks for the next one."""
        self._keep(lambda task: task.number > saved)
        self._asked |= ask

    def superseded(self, saved: int) -> None:
        """The server has sent a new task: it wants no update that it does not have yet."""
        self._keep(lambda task: task.sent and task.number > saved)

    def assigned(
        self, place: Any, number: int, task_token: bytes, message: ServerMessage, saved: int = 0
    ) -> PendingTask:
        """Add a new task."""
        self.superseded(saved)
        (order,) = self.client.handle(self.client.server, message)
        assert isinstance(order, Train)
        task = PendingTask(place, number, task_token, order)
        self._place, self._asked, self._limit = place, True, most_unsaved(order.weights.size)
        others = [held for held in self.tasks if held.place != place]
        self.tasks = [*others[-self._limit :], *self._here(), task]
        return task

    def trained(
        self,
        task: PendingTask,
        weights: Vector,
        examples: int | None = None,
        metrics: Mapping[str, float] | None = None,
        evaluation: Mapping[str, float] | None = None,
    ) -> None:
        """Keep the result of a training, unless its task was replaced meanwhile."""
        if task in self.tasks:
            (action,) = self.client.trained(weights, examples, metrics, evaluation)
            assert isinstance(action, ToServer)
            assert isinstance(action.message, ClientMessage)
            task.answer, task.order = action.message, None

    def offer(self) -> tuple[bytes, ClientMessage] | None:
        """Return the token and the update to be sent now, once for each time that the server asks or gives a task.

        A client with too many unsaved updates waits until a checkpoint holds some of them.
        """
        task = self.task
        if task is None or task.answer is None or not self._asked:
            return None
        if sum(held.sent for held in self._here()) >= self._limit:
            return None
        self._asked, task.sent, self._offered = False, True, task
        return task.task_token, task.answer

    @property
    def offered_booking(self) -> int:
        """Number in the privacy ledger of the training whose update was offered last; 0: there is no ledger."""
        return 0 if self._offered is None else self._offered.booked

    def rejected(self) -> None:
        """The server has rejected the update that was sent last, and would reject it again."""
        offered = self._offered
        self.tasks = [task for task in self.tasks if task.place != self._place or offered not in (None, task)]

    def leave(self) -> None:
        """The client turns to another server although it could reach this one, which has the updates in memory."""
        for task in self._here():
            task.left = True

    def drop(self) -> None:
        """Drop everything."""
        self.tasks = []

    def _here(self) -> list[PendingTask]:
        return [task for task in self.tasks if task.place == self._place]

    def _keep(self, wanted: Callable[[PendingTask], bool]) -> None:
        """Drop the present server's tasks that are not wanted."""
        self.tasks = [task for task in self.tasks if task.place != self._place or wanted(task)]
