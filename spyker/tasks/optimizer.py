"""How a client descends: any optimiser of ``torch.optim``, a schedule for its rate, and a bound for its gradients.

An optimiser whose steps treat every number alike is given the whole model as one vector, which is faster. One that
looks at shapes, and any where part of the model is frozen, is given the parameters as they are.
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
ALIKE = ("ASGD", "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop", "SGD")
NO_TEXT = ("LRScheduler", "LambdaLR", "MultiplicativeLR", "SequentialLR", "ChainedScheduler", "ReduceLROnPlateau")
MOST_RATES = 64  # rates for which a schedule is remembered

Closure = Callable[[], Tensor]
"""Computes the gradients of a batch and returns its loss."""


def classes(module: Any, base: type, without: Sequence[str] = ()) -> dict[str, type[Any]]:
    """The public subclasses in a module, by name."""
    found = {name: kind for name, kind in vars(module).items() if isinstance(kind, type) and issubclass(kind, base)}
    return {n: kind for n, kind in found.items() if kind is not base and n[0] != "_" and n not in without}


OPTIMISERS = classes(torch.optim, Optimizer)
SCHEDULES = classes(lr_scheduler, lr_scheduler.LRScheduler, NO_TEXT)


def chosen(name: str, kinds: Mapping[str, type[Any]], where: str, short: Sequence[str] = ()) -> type[Any]:
    """The class of this name, whatever its letters' case."""
    for known, kind in kinds.items():
        if known.lower() == name.lower():
            return kind
    raise UsageError(where, f"{show(name)} is not allowed", suggest(name, (*short, *kinds)))


def arguments(
    options: Mapping[str, object] | None, kind: type[Any], where: str, given: Sequence[str]
) -> dict[str, Any]:
    """Options as arguments of a class, which must have them; those that are ``given`` are not for options."""
    takes = list(inspect.signature(kind).parameters)
    known = {kebab(name).lower(): name for name in takes if name not in given}
    found: dict[str, Any] = {}
    for key, value in (options or {}).items():
        if key == "lr":
            raise UsageError(f"{where}.lr", f"{show(value)} is not allowed", "The rate is training.rate")
        name = known.get(kebab(key).lower())
        if name is None:
            raise UsageError(f"{where}.{key}", f"is no argument of {kind.__name__}", suggest(kebab(key).lower(), known))
        found[name] = tuple(value) if isinstance(value, list) and name == "betas" else value
    return found


class OptimizerConfig:
    """What [training] says about how to descend, checked."""

    def __init__(self, training: Training) -> None:
        name, usual = SHORT.get(training.optimiser, (training.optimiser, {}))
        self.kind = chosen(name, OPTIMISERS, "training.optimiser", ("sgd", "momentum", "adam"))
        given = ("params", "lr", "foreach", "fused", "capturable", "differentiable", "maximize")
        self.options = usual | arguments(training.optimiser_options, self.kind, "training.optimiser-options", given)
        self.plain = self.kind is torch.optim.SGD and not self.options
        self.alike = self.kind.__name__ in ALIKE
        self.clip_norm, self.keeps = training.clip_norm, bool(training.keep_optimiser)
        self.schedule = None
        if training.schedule is not None:
            self.schedule = RateSchedule(training.schedule, training.schedule_options)
            assert training.rate is not None  # only a Flower app may leave it open
            self.schedule.rate(training.rate, 0)
        elif training.schedule_options:
            raise UsageError("training.schedule-options", "is set without training.schedule", "Name the schedule")

    def begin(self, whole: Tensor, parameters: Sequence[Tensor], rate: float, kept: Any = None) -> OptimizerSteps:
        """Begin a training of a model, as one vector and as parameters; ``kept`` is what the last one left."""
        if self.plain:
            return OptimizerSteps(self, whole, None, rate)
        frozen = any(not parameter.requires_grad for parameter in parameters)
        trained = [whole] if self.alike and not frozen else [p for p in parameters if p.requires_grad]
        try:
            optimiser = self.kind(trained, lr=rate, **self.options)
        except (TypeError, ValueError) as error:
            where = "training.optimiser-options" if self.options else "training.optimiser"
            raise UsageError(where, f"does not suit {self.kind.__name__}: {error}", "Mend it") from None
        if kept is not None:
            optimiser.load_state_dict(kept)
        return OptimizerSteps(self, whole, optimiser, rate)


class OptimizerSteps:
    """The steps of one training."""

    def __init__(self, descent: OptimizerConfig, whole: Tensor, optimiser: Optimizer | None, rate: float) -> None:
        self.descent, self.whole, self.optimiser = descent, whole, optimiser
        self._given = rate
        self._set(rate)

    def epoch(self, number: int) -> None:
        """An epoch begins, the client's so-manieth over all of its trainings."""
        if self.descent.schedule is not None:
            self._set(self.descent.schedule.rate(self._given, number))

    def _set(self, rate: float) -> None:
        self.rate = rate
        if self.optimiser is not None:
            for group in self.optimiser.param_groups:
                group["lr"] = rate

    def step(self, closure: Closure) -> Tensor:
        """One step down the gradient, whose loss is returned. Only LBFGS asks for it more than once."""
        if isinstance(self.optimiser, torch.optim.LBFGS):
            return torch.as_tensor(self.optimiser.step(closure))
        loss = closure()
        if self.optimiser is None:
            assert self.whole.grad is not None
            self.whole.add_(self.whole.grad, alpha=-self.rate)
        else:
            self.optimiser.step()
        return loss

    def left(self) -> dict[str, Any] | None:
        """What the next training of this client goes on from, if it is to."""
        return self.optimiser.state_dict() if self.descent.keeps and self.optimiser is not None else None


class RateSchedule:
    """A schedule of ``torch.optim.lr_scheduler``: the rate of every epoch follows from the first one's."""

    def __init__(self, name: str, options: Mapping[str, object] | None) -> None:
        self.name, self.given = name, options
        self.kind = chosen(name, SCHEDULES, "training.schedule")
        self.options = arguments(
            options, self.kind, "training.schedule-options", ("optimizer", "last_epoch", "verbose")
        )
        self._known: dict[float, tuple[list[float], Any]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        """Without what it remembers."""
        return RateSchedule, (self.name, self.given)

    def rate(self, first: float, epoch: int) -> float:
        """The rate of an epoch, counted from 0, where the server says ``first``."""
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
        optimiser = torch.optim.SGD([torch.zeros(1)], lr=rate, momentum=0.9)  # some schedules ask for a momentum
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                schedule = self.kind(optimiser, **self.options)
        except (TypeError, ValueError) as error:
            raise UsageError(
                "training.schedule-options", f"does not suit {self.kind.__name__}: {error}", "Mend it"
            ) from None
        optimiser.step()  # it does nothing, and schedules want one before their first
        return schedule
