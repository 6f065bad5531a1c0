"""Construction of a scenario's task.

A task that is not built in is created by a factory, ``function(clients=…, seed=…, training=…, **options)``, which
returns a :class:`~spyker.tasks.task.Task`. A program may pass the factory or a task instead of a name.
"""

from __future__ import annotations

import importlib
import inspect
import tomllib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeGuard

from spyker.config.client_privacy import ClientBudget
from spyker.config.privacy_settings import PrivacySettings
from spyker.config.scenario import BOTH, CLIENTS, SERVERS, Evaluation, Scenario, TaskChoice, Training
from spyker.config.sections import kebab, read, show, to_toml
from spyker.config.suggest import suggest
from spyker.errors import TaskError, UsageError
from spyker.extras import require
from spyker.own_code import code_digest, value_digest
from spyker.tasks.by_value import ByValue
from spyker.tasks.checked_task import CheckedTask, located_errors, own_traceback
from spyker.tasks.data.dataset import Array
from spyker.tasks.federated_task import CLIENT_OPTIONS, ClientInfo, ClientRoster, FederatedTask
from spyker.tasks.local_data import ClientDatasets, LocalClients
from spyker.tasks.make_federated import make_federated, needs
from spyker.tasks.served_model import ModelSpec
from spyker.tasks.task import Task, limits_by_name
from spyker.tasks.task_names import BUILT_IN, NAMES, PACKAGES, WHERE, check_name


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """A small, picklable description of a task, from which every worker process creates its own."""

    choice: TaskChoice
    clients: int
    seed: int
    training: Training
    evaluation: Evaluation = Evaluation()
    names: tuple[str, ...] = ()
    """Names of the clients, in the order of their numbers, if they have any."""
    own: Mapping[int, ClientInfo] | None = None
    """The clients of this process in a federation; ``None``: all clients of an emulation."""
    privacy: PrivacySettings = PrivacySettings()

    def make(self) -> Task:
        """Create the task, and check that its number of clients matches and that it can be evaluated as required."""
        task = self._make()
        if self.training.personal and not task.personal:
            problem = f"is not allowed: {type(task).__name__} does not support personal parameters"
            raise UsageError("training.personal", problem, "Use a PyTorch model or a FederatedTask, or leave it out")
        task.evaluated_by = evaluated_by(self.evaluation, task)
        task.client_budget = ClientBudget.of(self.privacy)
        if self.privacy.per_example:
            task.protect_examples(self.privacy, deployed=self.own is not None)
        if self.privacy.hides_metrics and not self.privacy.masks_scores:
            task.evaluated_by = privately_evaluated_by(self.privacy, self.evaluation, task)
        if task.evaluated_by != SERVERS:
            task.hold_out(self.evaluation.holdout)
        if task.local:
            return task
        CheckedTask(task).check_sizes(self.clients)
        datasets = getattr(task, "clients", None)
        if isinstance(datasets, ClientDatasets) and len(datasets) > self.clients:
            raise UsageError(
                "world.clients",
                f"is {self.clients} in total, but the task has data for {len(datasets)} clients",
                "Set --clients to that number, or give the task one dataset per client",
            )
        return task

    def _make(self) -> Task:
        name, options, given = self.choice.name, self.choice.options, self.choice.given
        if given is None and name in BUILT_IN:
            require(f"task {name}", *PACKAGES.get(name, ()))
            task = importlib.import_module(BUILT_IN[name]).make(options, self.clients, self.seed, self.training)
        elif given is not None and isinstance(given.value, Task):
            return given.value
        elif (definition := self._definition()) is not None:
            roster = ClientRoster(self.clients, self.seed, self.names, self._client_options(), self.own)
            return make_federated(LocalClients(definition, roster), self.training, self.seed)
        else:
            function, arguments = self.call()
            with located_errors(f"task {name}, creating it"):
                task = function(**arguments)
        if not isinstance(task, Task):
            raise UsageError("task.name", f"{name} returned {type(task).__name__}", "Return a spyker Task")
        return task

    def _definition(self) -> FederatedTask | None:
        """Return the user's federated task, if the name or the object is one."""
        found = self._found()
        if isinstance(found, FederatedTask):
            return found
        if not is_definition(found):
            return None
        with located_errors(f"task {self.choice.name}, making it"):
            return found(**self._definition_options(found))

    def _found(self) -> Any:
        """Return what the task's name refers to, or the object that a program passed."""
        return NAMES.find(self.choice.name, WHERE) if self.choice.given is None else self.choice.given.value

    def _definition_options(self, definition: type[FederatedTask]) -> dict[str, Any]:
        """Return the constructor's arguments; raise a ``UsageError`` if it does not accept them."""
        for missing in sorted(definition.__abstractmethods__):
            name = definition.__name__
            raise UsageError("task", f"{name} has no method {missing}", needs(name, missing))
        options = {k.replace("-", "_"): value for k, value in self.choice.options.items() if k != CLIENT_OPTIONS}
        check_options(definition, options, self.choice.name)
        return options

    def check(self) -> None:
        """Raise a ``UsageError`` if a task that is not built in cannot be imported or does not accept its options."""
        found = self._found()
        if is_definition(found):
            self._definition_options(found)
        elif not isinstance(found, FederatedTask):
            self.call()

    def _client_options(self) -> dict[str, str]:
        """Return the local options of emulated clients."""
        options = self.choice.options.get(CLIENT_OPTIONS, {})
        if not isinstance(options, Mapping):
            raise UsageError(f"task.{CLIENT_OPTIONS}", f"{show(options)} is not allowed", "Write a table of strings")
        return {str(key): str(value) for key, value in options.items()}

    def call(self) -> tuple[Callable[..., Task], dict[str, Any]]:
        """Return the factory of a task that is not built in, and its arguments.

        Raises:
            UsageError: the factory does not accept the arguments.

        """
        name = self.choice.name
        function = self._found()
        if not callable(function):
            raise UsageError(WHERE, f"{name} is {type(function).__name__}", "Name a function that returns a task")
        standard = {"clients": self.clients, "seed": self.seed, "training": self.training}
        options = {key.replace("-", "_"): value for key, value in self.choice.options.items()}
        check_options(function, options, name, standard)
        return function, options | standard

    def guarded(self) -> CheckedTask:
        """Create the task in a worker; errors are raised as text."""
        try:
            return CheckedTask(self.make())
        except TaskError:
            raise
        except Exception as error:
            name = self.choice.name
            raise TaskError(f"task {name}, creating it in a worker:\n{own_traceback(error)}") from error


def check_options(
    function: Callable[..., object], options: Mapping[str, object], name: str, standard: Collection[str] = ()
) -> None:
    """Raise a ``UsageError`` if a factory or a class of tasks does not take these options and standard arguments."""
    signature = inspect.signature(function)
    try:
        signature.bind(**options, **dict.fromkeys(standard))
    except TypeError as error:
        own = [key for key in signature.parameters if key not in standard]
        missing = [key for key in standard if key not in signature.parameters]
        if missing and isinstance(function, type) and not issubclass(function, Task):
            problem = f"{name} is not allowed: the class does not extend spyker.FederatedTask"
            raise UsageError("task", problem, f"Write class {function.__name__}(spyker.FederatedTask)") from None
        if missing:
            remedy = f"Declare it as a function of ({', '.join([*standard, *own])})"
            raise UsageError("task", f"{name} does not take {' and '.join(missing)}", remedy) from None
        known = [kebab(key) for key in own]
        unknown = next((kebab(key) for key in options if kebab(key) not in known), None)
        kind = "function" if standard else "task"
        remedy = "Fix [task]" if unknown is None else suggest(unknown, known, f"Options of the {kind}")
        raise UsageError("task", f"{name} does not take these options: {error}", remedy) from None


def is_definition(value: object) -> TypeGuard[type[FederatedTask]]:
    """Return whether a value is a class of federated tasks."""
    return isinstance(value, type) and issubclass(value, FederatedTask)


def evaluated_by(evaluation: Evaluation, task: Task) -> str:
    """Return the parties that evaluate: ``evaluation.by`` or, if it is unset, all that have test data."""
    by = evaluation.by
    if by is None:
        return BOTH if task.has_test and task.evaluates_on_clients else SERVERS if task.has_test else CLIENTS
    if by != CLIENTS and not task.has_test:
        raise UsageError("evaluation.by", f"{by} is not allowed: the task has no central test data", "Write clients")
    return by


def privately_evaluated_by(privacy: PrivacySettings, evaluation: Evaluation, task: Task) -> str:
    """Return the parties that evaluate if clients send no scores, because scores are computed from private data."""
    if task.evaluated_by == SERVERS:
        return SERVERS
    if evaluation.by is None and task.has_test:
        return SERVERS
    key = "masking" if privacy.masking else f"unit = {privacy.unit}"
    problem = f"{task.evaluated_by} is not allowed: with privacy.{key} clients send no scores"
    remedy = "Give the task central test data and write servers, or set privacy.report-metrics = true"
    raise UsageError("evaluation.by", problem, remedy)


def masked_scores(privacy: PrivacySettings, task: Task, by: str) -> list[str]:
    """Return the metrics whose scores ride along with masked updates, given who evaluates."""
    return list(limits_by_name((task.metric, *task.also))) if privacy.masks_scores and by != SERVERS else []


def evaluation_interval(evaluation: Evaluation, privacy: PrivacySettings, by: str) -> float | None:
    """Return the seconds in which a client evaluates at most once; ``None``: never.

    With masked scores it evaluates each model that it receives: a sum needs the scores of several clients.
    """
    return None if by == SERVERS else 0.0 if privacy.masks_scores else evaluation.interval


def evaluated_by_deployed(evaluation: Evaluation, task: Task) -> str:
    """Return the parties that evaluate a task in a deployment."""
    return CLIENTS if evaluation.by is None and task.evaluation_needs_clients else task.evaluated_by


def choose(
    task: str | Callable[..., Task] | Task | FederatedTask, options: Mapping[str, object] | None = None
) -> TaskChoice:
    """Return the choice of a task given by name, factory or object."""
    keys = {kebab(key): value for key, value in (options or {}).items()}
    if isinstance(task, str):
        return TaskChoice(task, keys)
    if isinstance(task, Task | FederatedTask):
        if keys.keys() - {CLIENT_OPTIONS}:
            raise UsageError("task", "options are not allowed: the task is an object", "Give a factory function")
        return TaskChoice(f"{type(task).__module__}.{type(task).__qualname__}", keys, ByValue(task))
    if not callable(task):
        raise UsageError("task", f"{task!r:.60} is not allowed", "Give a name, a factory function or a Task")
    return TaskChoice(name_of(task), keys, ByValue(task))


def name_of(function: Callable[..., Task]) -> str:
    """Return the name of a function, importable if it is defined in a module."""
    module = getattr(function, "__module__", None) or type(function).__module__
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    return f"{module}.{name}" if module == "__main__" or not name.isidentifier() else f"{module}:{name}"


def resolve(scenario: Scenario) -> Scenario:
    """Check the task's options and fill in defaults."""
    choice = scenario.task
    if choice.given is None:
        check_name(choice.name)
        if choice.name in BUILT_IN:
            if isinstance(choice.options, Mapping):
                section = importlib.import_module(BUILT_IN[choice.name]).Options
                choice = replace(choice, options=read(section, choice.options, "task"))
            return replace(scenario, task=choice)
    for key, value in choice.options.items():
        check_option(key, value)
    return scenario


def check_option(key: str, value: object) -> None:
    """Check that an option can be an argument and be written to a scenario file."""
    if not key.replace("-", "_").isidentifier():
        raise UsageError(f"task.{key}", "is not a valid argument name", "Use letters, digits and dashes")
    try:
        tomllib.loads(f"value = {to_toml(value)}")
    except tomllib.TOMLDecodeError:
        raise UsageError(
            f"task.{key}", f"{value!r:.60} is not allowed in a scenario file", "Give numbers, strings, lists or dicts"
        ) from None


def with_task_defaults(scenario: Scenario, task: Task | ModelSpec) -> Scenario:
    """Return the scenario with the task's learning rate and targets where the scenario sets none.

    If the clients of a task evaluate by default, ``evaluation.by`` is set.
    """
    evaluation, training = scenario.evaluation, scenario.training
    if evaluation.targets is None:
        evaluation = replace(evaluation, targets=task.metric.targets)
    if isinstance(task, Task) and task.evaluated_by != SERVERS:
        evaluation = replace(evaluation, by=task.evaluated_by)
    return replace(scenario, evaluation=evaluation, training=replace(training, rate=rate_of(training, task)))


def rate_of(training: Training, task: Task | ModelSpec) -> float:
    """Return the initial learning rate: the scenario's, the task's, or the default."""
    rate = training.rate or task.rate or Training().rate
    assert rate is not None
    return rate


def built_in_function(task: str, name: str) -> Callable[..., Any] | None:
    """Return a function of a built-in task's module, if it has one of this name; ``None`` for other tasks."""
    return getattr(importlib.import_module(BUILT_IN[task]), name, None) if task in BUILT_IN else None


def check_code(scenario: Scenario) -> None:
    """Raise a ``UsageError`` if the task's code cannot be imported, before processes are started."""
    name = scenario.task.name
    require(f"task {name}", *PACKAGES.get(name, ()))
    if name not in BUILT_IN:
        task_spec(scenario).check()
    elif (check := built_in_function(name, "check")) is not None:
        check(scenario.task.options)


def client_labels(scenario: Scenario) -> list[Array]:
    """Return the labels of each client."""
    name = scenario.task.name
    function = built_in_function(name, "client_labels")
    if function is None:
        raise UsageError(
            "task.name", f"{show(name)} is not allowed: it has no labels", "Choose digits, mnist or cifar10"
        )
    labels: list[Array] = function(scenario.task.options, scenario.client_count, scenario.seed)
    return labels


def code_of(choice: TaskChoice) -> str:
    """Return a digest of the user's code that a task depends on; empty for built-in tasks."""
    if choice.given is None:
        if choice.name in BUILT_IN:
            function = built_in_function(choice.name, "code_of")
            return "" if function is None else str(function(choice.options))
        return NAMES.release(choice.name) + code_digest(NAMES.place(choice.name))
    return value_digest(choice.given.value)


def task_spec(scenario: Scenario) -> TaskSpec:
    """Return the specification of a scenario's task."""
    names = scenario.world.client_names or ()
    return TaskSpec(
        scenario.task,
        scenario.client_count,
        scenario.seed,
        scenario.training,
        scenario.evaluation,
        names,
        privacy=scenario.privacy,
    )
