"""A server's processor: one queue, served in the order of arrival, one message at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import TypeAlias

from spyker.emulate.clock import Clock
from spyker.protocol.messages import Action, ClientMessage, PeerMessage, ServeAgain
from spyker.protocol.server import Server, Work

Arrival: TypeAlias = tuple[int, ClientMessage | PeerMessage | str]
"""Who says what; a text is the name of the server's own timer that has run out."""
Perform: TypeAlias = Callable[["Processor", list[Action]], None]


class Processor:
    """Serves a server's messages. The effects of a message happen when its cost has elapsed."""

    __slots__ = ("_busy", "_timers", "clock", "costs", "longest", "perform", "queue", "server")

    def __init__(self, server: Server, clock: Clock, costs: Mapping[Work, float], perform: Perform) -> None:
        self.server = server
        self.clock = clock
        self.costs = costs
        self.perform = perform
        self.queue: deque[Arrival] = deque()  # the first one is in service
        self.longest = 0
        self._busy = False
        self._timers: dict[str, object] = {}  # those that run, each with a mark of its own

    def arrive(self, sender: int, message: ClientMessage | PeerMessage | str) -> None:
        """A message arrives: it waits for its turn."""
        self.queue.append((sender, message))
        if len(self.queue) > self.longest:
            self.longest = len(self.queue)
        if not self._busy:
            self._serve()

    def _serve(self) -> None:
        """Start on the first message; messages that cost nothing are done with at once."""
        while self.queue:
            sender, message = self.queue[0]
            cost = 0.0 if isinstance(message, str) else self.costs[self.server.work(sender, message)]
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
        sender, message = self.queue[0]
        server = self.server
        actions = server.expire(message) if isinstance(message, str) else server.handle(sender, message)
        self.perform(self, actions)
        self.queue.popleft()
        for action in actions:
            if isinstance(action, ServeAgain):
                self.queue.extendleft(reversed(action.messages))
                self.longest = max(self.longest, len(self.queue))

    # --- Timers ----------------------------------------------------------------------------------------------------

    def start_timer(self, timer: str, seconds: float) -> None:
        """Let a timer run, from now."""
        self._timers[timer] = mark = object()
        self.clock.at(self.clock.now + seconds, self._ring, timer, mark)

    def stop_timer(self, timer: str) -> None:
        """Let it be."""
        self._timers.pop(timer, None)

    def _ring(self, timer: str, mark: object) -> None:
        if self._timers.get(timer) is mark:  # it was neither stopped nor started again
            del self._timers[timer]
            self.arrive(self.server.id, timer)
