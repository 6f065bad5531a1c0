"""Whoever watches a run from Python: a function that is told every fact, or an object that is told when, too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias, runtime_checkable

from spyker.api.result import Run
from spyker.config.scenario import Scenario
from spyker.errors import UsageError
from spyker.records import Evaluated, Fact, RunStarted
from spyker.sim.plateau import Plateau
from spyker.sim.recording import Watch


@runtime_checkable
class BeginCallback(Protocol):
    """Is told the scenario before its run begins."""

    def begin(self, scenario: Scenario) -> object:
        """A run of a scenario begins."""


@runtime_checkable
class FactCallback(Protocol):
    """Is told every fact."""

    def fact(self, t: float, fact: Fact) -> object:
        """Something happened at ``t`` virtual seconds. Return ``True`` to end the run, in good order."""


@runtime_checkable
class EndCallback(Protocol):
    """Is told the run when it has ended."""

    def end(self, run: Run) -> object:
        """The run is over; its record is complete."""


SCORES = ("mean", "worst", "best", "averaged")

Callback: TypeAlias = Callable[[float, Fact], object] | BeginCallback | FactCallback | EndCallback
"""A function ``(t, fact)``, or an object with some of the methods ``begin(scenario)``, ``fact(t, fact)``, ``end(run)``.

``True`` from the function or from ``fact`` ends the run early, in good order. What a callback raises ends it as well,
leaves its record readable, and arrives at the caller. When a run is resumed, an object with
``from_the_beginning = True`` is first told what happened before.
"""


class EarlyStopping:
    """A callback that ends a run when its score has not become better for ``patience`` virtual seconds.

    ``score`` is the ``mean`` of the servers, their ``worst`` or ``best``, or that of their ``averaged`` model; better
    means better by more than ``min_delta``. In a scenario, ``evaluation.patience`` does the same for the mean; with it
    a run ends at the same event every time, and it works in sweeps.
    """

    from_the_beginning = True

    def __init__(self, patience: float, *, min_delta: float = 0.0, score: str = "mean") -> None:
        if not patience > 0:
            raise UsageError("patience", f"{patience} is not allowed", "Give virtual seconds, more than 0")
        if not min_delta >= 0:
            raise UsageError("min_delta", f"{min_delta} is not allowed", "Give at least 0")
        if score not in SCORES:
            raise UsageError("score", f"{score!r} is not allowed", f"Give one of {', '.join(SCORES)}")
        self.patience, self.min_delta, self.score = patience, min_delta, score
        self.stopped: float | None = None
        """When it ended the run, if it did."""
        self._plateau = Plateau(higher_is_better=True)

    def fact(self, t: float, fact: Fact) -> bool:
        """Look at evaluations. A new run begins with a new judgement."""
        if isinstance(fact, RunStarted):
            self.stopped = None
            self._plateau = Plateau(higher_is_better=fact.higher_is_better, least=self.min_delta)
        if not isinstance(fact, Evaluated):
            return False
        self._plateau.tell(t, getattr(fact, self.score))
        if t - self._plateau.since < self.patience - 1e-9:  # times are sums
            return False
        self.stopped = t
        return True


class Callbacks:
    """Some callbacks, checked, who are told the same."""

    def __init__(self, callbacks: Sequence[Callback]) -> None:
        self._callbacks = callbacks
        self.watches: list[Watch] = []
        for callback in callbacks:
            if isinstance(callback, FactCallback):
                self.watches.append(callback.fact)
            elif not isinstance(callback, BeginCallback | EndCallback):
                if not callable(callback):
                    raise UsageError(
                        "callbacks",
                        f"{callback!r} cannot be told anything",
                        "Give functions (t, fact), or objects with begin, fact or end",
                    )
                self.watches.append(callback)

    def begin(self, scenario: Scenario) -> None:
        """A run begins."""
        for callback in self._callbacks:
            if isinstance(callback, BeginCallback):
                callback.begin(scenario)

    @property
    def from_the_beginning(self) -> list[Watch]:
        """Who is told, when a run is resumed, what happened before."""
        marked = [callback for callback in self._callbacks if getattr(callback, "from_the_beginning", False)]
        return [callback.fact for callback in marked if isinstance(callback, FactCallback)]

    def end(self, run: Run) -> None:
        """It has ended."""
        for callback in self._callbacks:
            if isinstance(callback, EndCallback):
                callback.end(run)
