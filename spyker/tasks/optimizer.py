"""Local optimisation: an optimiser of ``torch.optim``, a learning rate schedule and gradient clipping.

An elementwise optimiser gets the whole model as one vector, which is faster. An optimiser that depends on shapes, or
one for a partly frozen model, gets the parameters.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer, lr_scheduler

from spyker.config.scenario import Training
from spyker.config.sections import kebab, show
from spyker.config.suggest import suggest
from spyker.errors import UsageError

SHORT: dict[str, tuple[str, dict[str, object]]] = {"momentum": ("SGD", {"momentum": 0.9})}
ELEMENTWISE = ("ASGD", "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop", "SGD")
NO_TEXT = ("LRScheduler", "LambdaLR", "MultiplicativeLR", "SequentialLR", "ChainedScheduler", "ReduceLROnPlateau")
MOST_RATES = 64  # cached schedules, by initial rate

Closure = Callable[[], Tensor]
"""Computes the gradients of a batch and returns its loss."""


def classes(module: Any, base: type, without: Sequence[str] = ()) -> dict[str, type[Any]]:
    """Return the public subclasses of ``base`` in a module, by name."""
    found = {name: kind for name, kind in vars(module).items() if isinstance(kind, type) and issubclass(kind, base)}
    return {n: kind for n, kind in found.items() if kind is not base and n[0] != "_" and n not in without}


OPTIMISERS = classes(torch.optim, Optimizer)
SCHEDULES = classes(lr_scheduler, lr_scheduler.LRScheduler, NO_TEXT)


def chosen(name: str, kinds: Mapping[str, type[Any]], where: str, short: Sequence[str] = ()) -> type[Any]:
    """Return the class with this name, ignoring case."""
    for known, kind in kinds.items():
        if known.lower() == name.lower():
            return kind
    raise UsageError(where, f"{show(name)} is not allowed", suggest(name, (*short, *kinds)))


def arguments(
    options: Mapping[str, object] | None, kind: type[Any], where: str, given: Sequence[str]
) -> dict[str, Any]:
    """Convert options to arguments of a class. Arguments in ``given`` cannot be set by options."""
    takes = list(inspect.signature(kind).parameters)
    known = {kebab(name).lower(): name for name in takes if name not in given}
    found: dict[str, Any] = {}
    for key, value in (options or {}).items():
        if key == "lr":
            raise UsageError(f"{where}.lr", f"{show(value)} is not allowed", "Set training.rate instead")
        name = known.get(kebab(key).lower())
        if name is None:
            raise UsageError(
                f"{where}.{key}", f"is not an argument of {kind.__name__}", suggest(kebab(key).lower(), known)
            )
        found[name] = tuple(value) if isinstance(value, list) and name == "betas" else value
    return found


class OptimizerConfig:
    """The checked optimiser settings of ``[training]``."""

    def __init__(self, training: Training) -> None:
        name, defaults = SHORT.get(training.optimiser, (training.optimiser, {}))
        self.kind = chosen(name, OPTIMISERS, "training.optimiser", ("sgd", "momentum", "adam"))
        given = ("params", "lr", "foreach", "fused", "capturable", "differentiable", "maximize")
        self.options = defaults | arguments(training.optimiser_options, self.kind, "training.optimiser-options", given)
        self.plain = self.kind is torch.optim.SGD and not self.options
        self.elementwise = self.kind.__name__ in ELEMENTWISE
        self.clip_norm, self.keeps = training.clip_norm, bool(training.keep_optimiser)
        self.schedule = None
        if training.schedule is not None:
            self.schedule = RateSchedule(training.schedule, training.schedule_options)
            assert training.rate is not None  # only Flower apps may leave it unset
            self.schedule.rate(training.rate, 0)
        elif training.schedule_options:
            raise UsageError("training.schedule-options", "is set without training.schedule", "Name the schedule")

    def begin(
        self, whole: Tensor, parameters: Sequence[Tensor], rate: float, state: Any = None, *, direct: bool = False
    ) -> OptimizerSteps:
        """Start a training.

        Args:
            whole: all trained parameters as one vector, with their gradients.
            parameters: the same, one by one.
            rate: the learning rate.
            state: the optimiser state that the client's last training returned.
            direct: whether plain SGD takes the gradient of each parameter, and frees it, instead of one vector.

        """
        if self.plain:
            return OptimizerSteps(self, parameters if direct else [whole], None, rate, direct=direct)
        frozen = any(not parameter.requires_grad for parameter in parameters)
        trained = [whole] if self.elementwise and not frozen else [p for p in parameters if p.requires_grad]
        try:
            optimiser = self.kind(trained, lr=rate, **self.options)
        except (TypeError, ValueError) as error:
            where = "training.optimiser-options" if self.options else "training.optimiser"
            raise UsageError(where, f"does not suit {self.kind.__name__}: {error}", "Fix the options") from None
        if state is not None:
            optimiser.load_state_dict(state)
        return OptimizerSteps(self, trained, optimiser, rate)


class OptimizerSteps:
    """The optimiser steps of one training."""

    def __init__(
        self,
        descent: OptimizerConfig,
        trained: Sequence[Tensor],
        optimiser: Optimizer | None,
        rate: float,
        *,
        direct: bool = False,
    ) -> None:
        self.descent, self.trained, self.optimiser, self.direct = descent, trained, optimiser, direct
        self._given = rate
        self._set(rate)

    def epoch(self, number: int) -> None:
        """Start epoch ``number``, counted over all of the client's trainings."""
        if self.descent.schedule is not None:
            self._set(self.descent.schedule.rate(self._given, number))

    def _set(self, rate: float) -> None:
        self.rate = rate
        if self.optimiser is not None:
            for group in self.optimiser.param_groups:
                group["lr"] = rate

    def step(self, closure: Closure) -> Tensor:
        """Make one step and return the loss. Only LBFGS calls the closure more than once."""
        if isinstance(self.optimiser, torch.optim.LBFGS):
            return torch.as_tensor(self.optimiser.step(closure))
        loss = closure()
        if self.optimiser is None:
            for part in self.trained:
                if part.grad is not None:
                    part.data.add_(part.grad, alpha=-self.rate)
                if self.direct:
                    part.grad = None
        else:
            self.optimiser.step()
        return loss

    def state(self) -> dict[str, Any] | None:
        """Return the state for the client's next training, or ``None``."""
        return self.optimiser.state_dict() if self.descent.keeps and self.optimiser is not None else None


class RateSchedule:
    """A schedule of ``torch.optim.lr_scheduler``."""

    def __init__(self, name: str, options: Mapping[str, object] | None) -> None:
        self.name, self.given = name, options
        self.kind = chosen(name, SCHEDULES, "training.schedule")
        self.options = arguments(
            options, self.kind, "training.schedule-options", ("optimizer", "last_epoch", "verbose")
        )
        self._known: dict[float, tuple[list[float], Any]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without the cache."""
        return RateSchedule, (self.name, self.given)

    def rate(self, first: float, epoch: int) -> float:
        """Return the rate of an epoch, counted from 0, for the server's rate ``first``."""
        if first not in self._known:
            if len(self._known) == MOST_RATES:
                self._known.clear()
            self._known[first] = [], self._make(first)
        rates, schedule = self._known[first]
        while len(rates) <= epoch:
            if rates:
                schedule.step()
            rates.append(float(schedule.get_last_lr()[0]))
        return rates[epoch]

    def _make(self, rate: float) -> Any:
        optimiser = torch.optim.SGD([torch.zeros(1)], lr=rate, momentum=0.9)  # some schedules need a momentum
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                schedule = self.kind(optimiser, **self.options)
        except (TypeError, ValueError) as error:
            raise UsageError(
                "training.schedule-options", f"does not suit {self.kind.__name__}: {error}", "Fix the options"
            ) from None
        optimiser.step()  # a no-op that schedules require before their first step
        return schedule
