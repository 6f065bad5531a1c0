"""A wrapper around a task, which may be the user's code: it adapts calls, checks results and locates errors."""

from __future__ import annotations

import contextlib
import inspect
import json
import math
import pickle
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import replace
from numbers import Integral, Real
from types import TracebackType
from typing import Any, NoReturn

import cloudpickle
import numpy as np

from spyker.errors import ClientTrainingError, DataError, TaskError, UsageError
from spyker.tasks.federated_task import describe_client
from spyker.tasks.local_data import LocalDatasets
from spyker.tasks.task import ClientEvaluation, EvaluationResult, Task, TrainingResult
from spyker.vectors import Vector

PACKAGE = "spyker"
FLOAT32 = np.dtype(np.float32)
MOST_EXAMPLES, MOST_METRICS, LONGEST_NAME, LONGEST_NAMES = 1 << 53, 128, 256, 4096  # what a message can carry
LONGEST_REASON = 200  # characters of an error in a summary


class CheckedTask:
    """A task with checks.

    A client's state is pickled on this side: the engine need not know its type, and each training gets a copy.
    """

    def __init__(self, task: Task) -> None:
        self.task = task
        parameters = inspect.signature(task.train).parameters
        self._stateful, self._takes_age = "state" in parameters, "age" in parameters

    def train(
        self,
        client: int,
        weights: Vector,
        rate: float,
        step: int,
        state: bytes | None = None,
        age: float = 0.0,
        *,
        evaluate: bool = False,
    ) -> Vector | TrainingResult:
        """Train a model. The result is a :class:`TrainingResult`, with pickled state, unless it is only weights.

        With ``evaluate``, the client first evaluates the received model on its own test data.
        """
        evaluation = self._evaluate_client(client, weights, state) if evaluate else None
        try:
            optional: dict[str, Any] = {"age": age} if self._takes_age else {}
            if self._stateful:
                optional["state"] = None if state is None else pickle.loads(state)  # pickled below, in this run
            answer: Any = self.task.train(client, weights, rate, step, **optional)
        except Exception as error:
            self._fail_training(f"training {self._client(client)}", error)
        extended = isinstance(answer, TrainingResult)
        trained = answer.weights if extended else answer
        if not isinstance(trained, np.ndarray) or trained.dtype != FLOAT32 or trained.shape != weights.shape:
            self._refuse(
                client,
                describe(trained),
                f"Return a NumPy array of {weights.size} float32, or TrainingResult(weights=…) with such weights",
            )
        trained = trained.view()
        trained.flags.writeable = False  # the task may keep it, and return it again
        if extended:
            checked = self._checked(client, replace(answer, weights=trained))
            return checked if evaluation is None else replace(checked, evaluation=evaluation)
        return trained if evaluation is None else TrainingResult(trained, evaluation=evaluation)

    def _evaluate_client(self, client: int, weights: Vector, state: bytes | None) -> ClientEvaluation | None:
        try:
            known = None if state is None or not self._stateful else pickle.loads(state)  # pickled below, in this run
            found = self.task.evaluate_client(client, weights, known)
        except Exception as error:
            self._fail_training(f"evaluating a model on the test data of {self._client(client)}", error)
        if found is None:
            return None
        scores = {str(name): float(value) for name, value in found.scores.items()}
        if self.task.metric.name not in scores or not all(map(math.isfinite, scores.values())) or found.examples < 1:
            self._refuse(
                client, f"the evaluation {found!r:.80}", f"Give finite numbers, among them {self.task.metric.name}"
            )
        return ClientEvaluation(int(found.examples), scores)

    def size(self, client: int) -> int:
        """Return the number of data points of a client."""
        try:
            size = self._size(client)
        except UsageError as error:
            raise TaskError(str(error)) from error
        if not is_count(size):
            raise TaskError(f"task {self.name}: client {client} has {size!r} examples. Give it some, or leave it out")
        return int(size)

    def check_sizes(self, clients: int) -> None:
        """Raise a ``UsageError`` for a client without data."""
        for k in range(clients):
            size = self._size(k)
            if not is_count(size):
                raise UsageError("task", f"client {k} has {size!r} examples", "Add examples, or set fewer --clients")

    def _size(self, client: int) -> int:
        """Return what the task says, which may be anything."""
        try:
            return self.task.size(client)
        except UsageError:
            raise
        except Exception as error:
            self._fail(f"counting the data of {self._client(client)}", error)

    def evaluate(self, weights: Vector, states: Mapping[int, bytes] | None = None) -> float | EvaluationResult:
        """Evaluate a model. The result is an :class:`EvaluationResult` if the task has several metrics."""
        task = self.task
        try:
            known = () if states is None else ({k: pickle.loads(state) for k, state in states.items()},)
            found = task.evaluate(weights, *known)
            if not isinstance(found, Mapping) and not task.also:
                return float(found)
        except Exception as error:
            self._fail("evaluating a model", error)
        names = [metric.name for metric in (task.metric, *task.also)]
        if not isinstance(found, Mapping) or sorted(map(str, found)) != sorted(names):
            got = f"a dict of {', '.join(map(repr, found))}" if isinstance(found, Mapping) else repr(found)
            raise TaskError(
                f"task {self.name}, evaluating a model: returned {got}. Return a dict of "
                f"{', '.join(map(repr, names))}: what the task declares in metric and also"
            )
        try:
            score, *others = (float(found[name]) for name in names)
        except Exception as error:
            self._fail("evaluating a model", error)
        return EvaluationResult(score, dict(zip(names[1:], others, strict=True))) if others else score

    def explain(self, client: int, weights: Vector, rate: float, step: int, state: bytes | None) -> str:
        """Return the task's explanation of a training whose result is not finite."""
        try:
            if not self._stateful:
                return self.task.explain(client, weights, rate, step)
            return self.task.explain(client, weights, rate, step, None if state is None else pickle.loads(state))
        except Exception as error:
            return f"repeating the training failed: {type(error).__name__}: {error}"

    def _checked(self, client: int, answer: TrainingResult) -> TrainingResult:
        examples, metrics = answer.examples, answer.metrics
        if examples is not None:
            if not is_count(examples) or examples >= MOST_EXAMPLES:
                self._refuse(client, f"examples = {examples!r}", "Give their number, at least 1, or leave it out")
            answer = replace(answer, examples=int(examples))
        if metrics is not None:
            if not isinstance(metrics, Mapping) or len(metrics) > MOST_METRICS:
                self._refuse(client, f"metrics = {metrics!r:.60}", f"Give a dict of up to {MOST_METRICS} numbers")
            for name, value in metrics.items():
                number = isinstance(value, Real) and math.isfinite(value)
                if not isinstance(name, str) or len(name) > LONGEST_NAME or not number:
                    self._refuse(client, f"the metric {name!r:.60}: {value!r}", "Give finite numbers, each with a name")
            if sum(len(json.dumps(name)) for name in metrics) > LONGEST_NAMES:
                self._refuse(client, "metrics with long names", f"Use at most {LONGEST_NAMES:,} bytes for all names")
            metrics = {name: float(value) for name, value in metrics.items()}
        if answer.state is None:
            return replace(answer, metrics=metrics)
        if not self._stateful:
            self._refuse(client, "a state, and train has no parameter for it", "Declare train(…, step, state=None)")
        try:
            return replace(answer, metrics=metrics, state=cloudpickle.dumps(answer.state))
        except Exception as error:
            self._fail_training(f"pickling the state of client {client}", error)

    def _refuse(self, client: int, returned: str, remedy: str) -> NoReturn:
        reason = f"returned {returned}. {remedy}"
        raise ClientTrainingError(f"task {self.name}, training client {client}: {reason}", reason)

    def _fail_training(self, doing: str, error: Exception) -> NoReturn:
        raise ClientTrainingError(self._message(doing, error), one_line(error)) from error

    def _fail(self, doing: str, error: Exception) -> NoReturn:
        raise TaskError(self._message(doing, error)) from error

    def _client(self, number: int) -> str:
        """Return a client as errors name it: with its name, if it has one of its own."""
        datasets = getattr(self.task, "clients", None)
        return (
            describe_client(datasets.roster.client(number))
            if isinstance(datasets, LocalDatasets)
            else f"client {number}"
        )

    def _message(self, doing: str, error: Exception) -> str:
        return f"task {self.name}, {doing}:\n{own_traceback(error)}"

    @property
    def name(self) -> str:
        """Name of the user's class."""
        return type(getattr(self.task, "definition", self.task)).__qualname__


def is_count(value: object) -> bool:
    """Return whether a value is a positive integer."""
    return isinstance(value, Integral) and not isinstance(value, bool) and value > 0  # type: ignore[operator]


def describe(answer: object) -> str:
    """Describe a return value that is not a weight vector."""
    if isinstance(answer, np.ndarray):
        return f"an array of {answer.dtype} in the shape {answer.shape}"
    return f"{answer!r:.60} ({type(answer).__name__})"


def first_line(error: Exception) -> str:
    """Return the first line of an error, with its type unless it is a ``UsageError``."""
    first = next(iter(str(error).strip().splitlines()), "")
    return first if isinstance(error, UsageError) else f"{type(error).__name__}: {first}".rstrip(": ")


def one_line(error: Exception) -> str:
    """Return the first line of an error, truncated."""
    text = first_line(error)
    return text if len(text) <= LONGEST_REASON else f"{text[: LONGEST_REASON - 1]}…"


@contextlib.contextmanager
def located_errors(doing: str) -> Iterator[None]:
    """Turn errors of the user's code into a ``TaskError`` that says what was being done."""
    try:
        yield
    except (UsageError, DataError):
        raise
    except Exception as error:
        raise TaskError(f"{doing}:\n{own_traceback(error)}") from error


def own_traceback(error: Exception) -> str:
    """Return an error with its traceback from the first frame outside Spyker; a ``UsageError`` without."""
    if isinstance(error, UsageError):
        return str(error)
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None and is_ours(trace):
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace)).rstrip()


def is_ours(trace: TracebackType) -> bool:
    """Return whether a frame of a traceback is in Spyker's own code."""
    module = str(trace.tb_frame.f_globals.get("__name__"))
    return module == PACKAGE or module.startswith(f"{PACKAGE}.")
