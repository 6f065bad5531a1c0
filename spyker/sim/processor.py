"""A server's processor: one FIFO queue, one message at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from typing import TypeAlias

from spyker.protocol.messages import Action, ClientMessage, PeerMessage, Requeue
from spyker.protocol.server import Server, Work
from spyker.sim.clock import Clock
from spyker.sim.timers import SimTimers

Arrival: TypeAlias = tuple[int, ClientMessage | PeerMessage | str]
"""Sender and message; a string is the name of an expired timer of the server."""
Perform: TypeAlias = Callable[["Processor", list[Action]], None]


class QueueServer(ABC):
    """Serves a queue. A message takes effect when its cost has elapsed."""

    __slots__ = ("busy", "clock", "costs", "longest")

    def __init__(self, clock: Clock, costs: Mapping[Work, float]) -> None:
        self.clock, self.costs = clock, costs
        self.longest = 0
        self.busy = False

    @property
    @abstractmethod
    def server(self) -> Server:
        """The server."""

    @abstractmethod
    def _next(self) -> Work | None:
        """Return the cost class of the first message, or ``None`` if the queue is empty."""

    @abstractmethod
    def _handle(self) -> None:
        """Process the first message, which still counts as queued."""

    def _serve(self) -> None:
        """Start to serve the first message; messages without cost are processed immediately."""
        while (work := self._next()) is not None:
            cost = self.costs[work]
            if cost > 0:
                self.busy = True
                self.clock.at(self.clock.now + cost, self.done, None, None)
                return
            self._handle()

    def done(self, _a: None, _b: None) -> None:
        """Process the first message after its cost has elapsed."""
        self.busy = False
        self._handle()
        self._serve()


class Processor(QueueServer):
    """The processor of a server that never crashes."""

    __slots__ = ("_server", "id", "perform", "queue", "timers")

    def __init__(self, server: Server, clock: Clock, costs: Mapping[Work, float], perform: Perform) -> None:
        super().__init__(clock, costs)
        self._server, self.id = server, server.id
        self.perform = perform
        self.queue: deque[Arrival] = deque()  # the first one is in service
        self.timers = SimTimers(clock, lambda timer: self.receive(self.id, timer))

    @property
    def server(self) -> Server:
        """The server."""
        return self._server

    def receive(self, sender: int, message: ClientMessage | PeerMessage | str) -> None:
        """Queue a message."""
        self.queue.append((sender, message))
        if len(self.queue) > self.longest:
            self.longest = len(self.queue)
        if not self.busy:
            self._serve()

    def _next(self) -> Work | None:
        if not self.queue:
            return None
        sender, message = self.queue[0]
        return self._server.work_of(message) if type(message) is str else self._server.work(sender, message)  # type: ignore[arg-type]

    def _handle(self) -> None:
        sender, message = self.queue[0]
        server = self._server
        actions = server.expire(message) if type(message) is str else server.handle(sender, message)  # type: ignore[arg-type]
        self.perform(self, actions)
        self.queue.popleft()
        for action in actions:
            if isinstance(action, Requeue):
                self.queue.extendleft(reversed(action.messages))
                self.longest = max(self.longest, len(self.queue))

    def start_timer(self, timer: str, seconds: float) -> None:
        """Start a timer."""
        self.stop_timer(timer)
        self.timers.start(timer, seconds)

    def stop_timer(self, timer: str) -> None:
        """Cancel a timer, also if its expiry is queued."""
        self.timers.stop(timer)
        if (self.id, timer) in self.queue:
            self.queue = deque(a for n, a in enumerate(self.queue) if n == 0 or a[1] != timer)
