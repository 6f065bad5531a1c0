"""A server's processor: one queue, served in the order of arrival, one message at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import TypeAlias

from spyker.emulate.clock import Clock
from spyker.protocol.messages import Action, ClientMessage, PeerMessage, ServeAgain
from spyker.protocol.server import Server, Work

Arrival: TypeAlias = tuple[int, ClientMessage | PeerMessage]
Perform: TypeAlias = Callable[["Processor", list[Action]], None]


class Processor:
    """Serves a server's messages. The effects of a message happen when its cost has elapsed."""

    __slots__ = ("_busy", "clock", "costs", "longest", "perform", "queue", "server")

    def __init__(self, server: Server, clock: Clock, costs: Mapping[Work, float], perform: Perform) -> None:
        self.server = server
        self.clock = clock
        self.costs = costs
        self.perform = perform
        self.queue: deque[Arrival] = deque()  # the first one is in service
        self.longest = 0
        self._busy = False

    def arrive(self, sender: int, message: ClientMessage | PeerMessage) -> None:
        """A message arrives: it waits for its turn."""
        self.queue.append((sender, message))
        if len(self.queue) > self.longest:
            self.longest = len(self.queue)
        if not self._busy:
            self._serve()

    def _serve(self) -> None:
        """Start on the first message; messages that cost nothing are done with at once."""
        while self.queue:
            cost = self.costs[self.server.work(*self.queue[0])]
            if cost > 0:
                self._busy = True
                self.clock.at(self.clock.now + cost, self._done, None, None)
                return
            self._handle()

    def _done(self, _a: None, _b: None) -> None:
        self._busy = False
        self._handle()
        self._serve()

    def _handle(self) -> None:
        """Let the first message take effect. It still counts as queued while it does."""
        actions = self.server.handle(*self.queue[0])
        self.perform(self, actions)
        self.queue.popleft()
        for action in actions:
            if isinstance(action, ServeAgain):
                self.queue.extendleft(reversed(action.messages))
                self.longest = max(self.longest, len(self.queue))
