"""Callbacks: functions that receive every fact of a run, or objects that also receive its start and end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias, runtime_checkable

from spyker.api.result import Run
from spyker.config.name_lookup import NameLookup
from spyker.config.scenario import Scenario
from spyker.errors import UsageError
from spyker.records import Evaluated, Fact, RunStarted
from spyker.sim.plateau import Plateau
from spyker.sim.recording import Watch


@runtime_checkable
class BeginCallback(Protocol):
    """A callback that receives the scenario before the run starts."""

    def begin(self, scenario: Scenario) -> object:
        """Process the start of a run."""


@runtime_checkable
class FactCallback(Protocol):
    """A callback that receives every fact."""

    def fact(self, t: float, fact: Fact) -> object:
        """Process a fact at ``t`` virtual seconds. Return ``True`` to stop the run."""


@runtime_checkable
class EndCallback(Protocol):
    """A callback that receives the finished run."""

    def end(self, run: Run) -> object:
        """Process the end of a run, whose record is complete."""


SCORES = ("mean", "worst", "best", "averaged")

Callback: TypeAlias = Callable[[float, Fact], object] | BeginCallback | FactCallback | EndCallback
"""A function ``(t, fact)``, or an object with some of the methods ``begin(scenario)``, ``fact(t, fact)``, ``end(run)``.

``True`` from the function or from ``fact`` stops the run; its record stays complete up to then. An exception in a
callback stops the run as well and is raised to the caller.
"""


NAMES = NameLookup((), "spyker.callbacks", "module:function")


def find_callback(text: str) -> Callback:
    """Make the callback that a command line names.

    Args:
        text: ``NAME`` or ``NAME=ARGUMENT``. The name is ``module:function``, or that of an entry point in the group
            ``spyker.callbacks``; the function, or class, is called with the argument, if there is one.

    """
    name, given, argument = text.partition("=")
    NAMES.check(name, "--callback")
    make = NAMES.find(name, "--callback")
    if not callable(make):
        raise UsageError("--callback", f"{name} is {type(make).__name__}", "Name a function that makes a callback")
    callback: Callback = make(argument) if given else make()
    return callback


class EarlyStopping:
    """A callback that stops a run when its score has not improved for some time.

    The scenario key ``evaluation.patience`` does the same for the mean score; it stops every run at the same event
    and also works in sweeps.

    Args:
        patience: virtual seconds without an improvement.
        min_delta: smallest change that counts as an improvement.
        score: ``mean``, ``worst`` or ``best`` of the servers, or ``averaged``, the score of their averaged model.

    """

    def __init__(self, patience: float, *, min_delta: float = 0.0, score: str = "mean") -> None:
        if not patience > 0:
            raise UsageError(
                "patience", f"{patience} is not allowed", "Give a number of virtual seconds greater than 0"
            )
        if not min_delta >= 0:
            raise UsageError("min_delta", f"{min_delta} is not allowed", "Give at least 0")
        if score not in SCORES:
            raise UsageError("score", f"{score!r} is not allowed", f"Give one of {', '.join(SCORES)}")
        self.patience, self.min_delta, self.score = patience, min_delta, score
        self.stopped: float | None = None
        """Time at which it stopped the run, or ``None``."""
        self._plateau = Plateau(higher_is_better=True)

    def fact(self, t: float, fact: Fact) -> bool:
        """Check an evaluation. The state is reset when a run starts."""
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
    """A list of checked callbacks."""

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
                        f"{callback!r} is not a callback",
                        "Give functions (t, fact), or objects with begin, fact or end",
                    )
                self.watches.append(callback)

    def begin(self, scenario: Scenario) -> None:
        """Notify the callbacks of the start of a run."""
        for callback in self._callbacks:
            if isinstance(callback, BeginCallback):
                callback.begin(scenario)

    def end(self, run: Run) -> None:
        """Notify the callbacks of the end of a run."""
        for callback in self._callbacks:
            if isinstance(callback, EndCallback):
                callback.end(run)
