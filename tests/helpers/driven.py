"""A node that is driven by hand: events go in one by one, and effects are kept until they are looked at."""

from __future__ import annotations

from typing import Any

from spyker.node.effects import Effect, Rejected
from spyker.node.events import Event, Handled, HandleNext
from spyker.node.node import Node


class Driven:
    """Stamps events with ``time`` and raises what the node rejects."""

    def __init__(self, node: Node, time: float = 0.0) -> None:
        self.node, self.time = node, time
        self.effects: list[Effect] = []

    def tell(self, kind: type[Event], *fields: Any, **named: Any) -> None:
        effects = self.node.step(kind(*fields, **named, now=self.time))
        self.effects += [effect for effect in effects if not isinstance(effect, Rejected)]
        if effects and isinstance(effects[-1], Rejected):
            raise effects[-1].rejection

    def handle_next(self) -> None:
        self.tell(HandleNext)
        self.tell(Handled, self.node.compute())

    def take(self) -> list[Effect]:
        """The effects since the last time."""
        effects, self.effects = self.effects, []
        return effects
