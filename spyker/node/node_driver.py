"""What all drivers of a node share: events in, effects carried out in order."""

from __future__ import annotations

from abc import ABC, abstractmethod

from spyker.node.effects import Effect, Rejected, SaveCheckpoint
from spyker.node.events import Event, Handled, HandleNext
from spyker.node.node import Node
from spyker.protocol.messages import StartTimer, StopTimer


class NodeDriver(ABC):
    """Passes events to a node and dispatches its effects. Subclasses have a clock, timers, a disk and a network."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self._effects: list[Effect] = []  # not carried out yet

    @abstractmethod
    def now(self) -> float:
        """Return the time on the clock that events are stamped with."""

    @abstractmethod
    def save(self, checkpoint: SaveCheckpoint) -> None:
        """Write a checkpoint, then step ``CheckpointSaved`` or ``CheckpointFailed``."""

    @abstractmethod
    def start_timer(self, timer: str, seconds: float) -> None:
        """Start or restart a timer; when it expires, step ``TimerFired``."""

    @abstractmethod
    def stop_timer(self, timer: str) -> None:
        """Stop a timer, if it runs."""

    @abstractmethod
    def perform(self, effect: Effect) -> None:
        """Carry out any other effect."""

    def step(self, event: Event) -> None:
        """Pass an event to the node and keep its effects for :meth:`carry_out`.

        Raises:
            Rejection: if the node has rejected the event. Other effects are kept all the same.

        """
        effects = self.node.step(event)
        rejected = effects.pop() if effects and isinstance(effects[-1], Rejected) else None
        self._effects += effects
        if isinstance(rejected, Rejected):
            raise rejected.rejection

    def carry_out(self) -> None:
        """Carry out all effects, those included that follow from carrying them out."""
        while self._effects:
            effects, self._effects = self._effects, []
            for effect in effects:
                if isinstance(effect, SaveCheckpoint):
                    self.save(effect)
                elif isinstance(effect, StartTimer):
                    self.start_timer(effect.timer, effect.seconds)
                elif isinstance(effect, StopTimer):
                    self.stop_timer(effect.timer)
                else:
                    self.perform(effect)

    def handle_next(self) -> None:
        """Let the node handle the first message in its inbox, in this thread."""
        self.step(HandleNext(now=self.now()))
        self.step(Handled(self.node.compute(), now=self.now()))
