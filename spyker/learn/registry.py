"""All tasks by name. A name with a colon, ``module:function``, is a task of the user's own.

A built-in task is a module with a section ``Options`` and a function ``make(options, clients, seed, training)``. A
user's function is called as ``function(clients=…, seed=…, training=…, **options)`` and returns a
:class:`~spyker.learn.task.Task`.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from spyker.config.scenario import Scenario, TaskChoice, Training
from spyker.config.sections import ScenarioError, read, show
from spyker.learn.data.dataset import Array
from spyker.learn.guard import Guard, TaskFailedError, own_traceback
from spyker.learn.task import Task

TASKS: dict[str, str] = {
    name: f"spyker.learn.{name}" for name in ("digits", "mnist", "cifar10", "wikitext2", "quadratic")
}


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to make a task. Small, so that every worker process can make its own."""

    choice: TaskChoice
    clients: int
    seed: int
    training: Training

    def make(self) -> Task:
        """Make the task."""
        name, options = self.choice.name, self.choice.options
        if name in TASKS:
            task = importlib.import_module(TASKS[name]).make(options, self.clients, self.seed, self.training)
        else:
            function = find_function(name)
            named = {key.replace("-", "_"): value for key, value in options.items()}
            named |= {"clients": self.clients, "seed": self.seed, "training": self.training}
            try:
                inspect.signature(function).bind(**named)
            except TypeError as error:
                raise ScenarioError("task", f"{name} does not take these options: {error}", "Mend [task]") from None
            task = function(**named)
        if not isinstance(task, Task):
            raise ScenarioError("task.name", f"{name} returned {type(task).__name__}", "Return a spyker Task")
        return task

    def guarded(self) -> Guard:
        """Make the task in a worker, from where errors travel as text."""
        try:
            return Guard(self.make())
        except Exception as error:
            name = self.choice.name
            raise TaskFailedError(f"task {name}, making it in a worker:\n{own_traceback(error)}") from error


def find_function(name: str) -> Any:
    """A user's function, from a module that Python finds from the current folder."""
    module, _, function = name.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        return getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise ScenarioError(
            "task.name", f"{show(name)} cannot be imported ({error})", "Run from the folder that holds the module"
        ) from None


def resolve(scenario: Scenario) -> Scenario:
    """Check the task's options and fill in what they leave open."""
    name, options = scenario.task.name, scenario.task.options
    if name in TASKS:
        if isinstance(options, Mapping):
            options = read(importlib.import_module(TASKS[name]).Options, options, "task")
    elif ":" not in name:
        raise ScenarioError(
            "task.name", f"is {show(name)}", f"Choose one of {', '.join(TASKS)}, or write module:function"
        )
    return replace(scenario, task=TaskChoice(name, options))


def client_labels(scenario: Scenario) -> list[Array]:
    """The labels that each client has, for a task whose data has labels."""
    name = scenario.task.name
    function = getattr(importlib.import_module(TASKS[name]), "client_labels", None) if name in TASKS else None
    if function is None:
        raise ScenarioError("task.name", f"{show(name)} has no labels to show", "Choose digits, mnist or cifar10")
    labels: list[Array] = function(scenario.task.options, scenario.client_count, scenario.seed)
    return labels


def recipe(scenario: Scenario) -> Recipe:
    """The recipe for a scenario's task."""
    return Recipe(scenario.task, scenario.client_count, scenario.seed, scenario.training)
