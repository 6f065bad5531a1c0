"""Whoever watches a run from Python: a function that is told every fact, or an object that is told when, too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias, runtime_checkable

from spyker.api.result import Run
from spyker.config.scenario import Scenario
from spyker.config.sections import ScenarioError
from spyker.emulate.record import Watch
from spyker.records import Fact


@runtime_checkable
class Begins(Protocol):
    """Is told the scenario before its run begins."""

    def begin(self, scenario: Scenario) -> object:
        """A run of a scenario begins."""


@runtime_checkable
class Watches(Protocol):
    """Is told every fact."""

    def fact(self, t: float, fact: Fact) -> object:
        """Something happened at ``t`` virtual seconds. Return ``True`` to end the run, in good order."""


@runtime_checkable
class Ends(Protocol):
    """Is told the run when it has ended."""

    def end(self, run: Run) -> object:
        """The run is over; its record is complete."""


Callback: TypeAlias = Callable[[float, Fact], object] | Begins | Watches | Ends
"""A function ``(t, fact)``, or an object with some of the methods ``begin(scenario)``, ``fact(t, fact)``, ``end(run)``.

``True`` from the function or from ``fact`` ends the run early, in good order. What a callback raises ends it as well,
leaves its record readable, and arrives at the caller.
"""


class Audience:
    """Some callbacks, checked, who are told the same."""

    def __init__(self, callbacks: Sequence[Callback]) -> None:
        self._callbacks = callbacks
        self.watches: list[Watch] = []
        for callback in callbacks:
            if isinstance(callback, Watches):
                self.watches.append(callback.fact)
            elif not isinstance(callback, Begins | Ends):
                if not callable(callback):
                    raise ScenarioError(
                        "callbacks",
                        f"{callback!r} cannot be told anything",
                        "Give functions (t, fact), or objects with begin, fact or end",
                    )
                self.watches.append(callback)

    def begin(self, scenario: Scenario) -> None:
        """A run begins."""
        for callback in self._callbacks:
            if isinstance(callback, Begins):
                callback.begin(scenario)

    def end(self, run: Run) -> None:
        """It has ended."""
        for callback in self._callbacks:
            if isinstance(callback, Ends):
                callback.end(run)
