"""Whoever watches a run from Python: a function that is told every fact, or an object that is told when, too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias, runtime_checkable

from spyker.config.scenario import Scenario
from spyker.config.sections import ScenarioError
from spyker.emulate.record import Watch
from spyker.library.result import Run
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


def watches(callbacks: Sequence[Callback]) -> list[Watch]:
    """Those among some callbacks that are told facts; all are checked."""
    found: list[Watch] = []
    for callback in callbacks:
        if isinstance(callback, Watches):
            found.append(callback.fact)
        elif isinstance(callback, Begins | Ends):
            continue
        elif callable(callback):
            found.append(callback)
        else:
            raise ScenarioError(
                "callbacks",
                f"{callback!r} cannot be told anything",
                "Give functions (t, fact), or objects with begin, fact or end",
            )
    return found
