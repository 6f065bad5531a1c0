"""Construction of a task from a :class:`~spyker.FederatedTask`."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from typing import Any

from spyker.config.scenario import Training
from spyker.errors import UsageError
from spyker.tasks.array_task import ArrayTask
from spyker.tasks.federated_task import FederatedTask
from spyker.tasks.local_data import LocalClients
from spyker.tasks.task import Task


def make_federated(clients: LocalClients, training: Training, seed: int) -> Task:
    """Make the task of some clients.

    Args:
        clients: the user's definition, and the clients whose data this process may load.
        training: the settings of ``[training]``.
        seed: seed of the initial model and of all trainings.

    """
    definition = clients.definition
    check_methods(definition)
    model = initial_model(definition, seed)
    if model is None:
        raise UsageError("task", "model() returned None", "Is `return` missing?")
    if isinstance(model, Mapping) and not hasattr(model, "parameters"):
        return ArrayTask(clients, model, training, seed)

    from torch.nn.functional import cross_entropy

    from spyker.tasks.torch_task import TorchTask, accuracy

    return TorchTask(
        model,
        clients,
        definition.test if definition.overrides("test") else None,
        training,
        seed=seed,
        loss=definition.loss if definition.overrides("loss") else cross_entropy,
        score=definition.score if definition.overrides("score") else accuracy,
        finish=definition.finish,
        metric=definition.metric,
        also=definition.also,
        collate_fn=definition.collate if definition.overrides("collate") else None,
        inputs=definition.inputs,
        target=definition.target,
        personal=definition.personal,
    )


ARGUMENTS = {
    "model": (),
    "data": ("client",),
    "test": (),
    "client_test": ("client",),
    "data_version": ("client",),
    "loss": ("outputs", "targets"),
    "score": ("outputs", "targets"),
    "finish": ("mean",),
    "collate": ("examples",),
    "evaluate": ("model", "data"),
}
"""The positional arguments of each method. The method ``train`` has named ones as well."""


def check_methods(definition: FederatedTask) -> None:
    """Raise a ``UsageError`` if a method of a federated task does not take the arguments that Spyker gives it."""
    task = type(definition).__name__
    for name, arguments in ARGUMENTS.items():
        if not definition.overrides(name):
            continue
        try:
            signature = inspect.signature(getattr(definition, name))
        except (TypeError, ValueError):  # of a built-in function
            continue
        try:
            signature.bind(*arguments)
        except TypeError as error:
            needed = needs(task, name)
            raise UsageError("task", f"{name}{signature} is not allowed: {error}", needed) from None


def needs(task: str, name: str) -> str:
    """Return the remedy for a method that is missing or has other parameters."""
    return f"{task} needs {name}({', '.join(('self', *ARGUMENTS[name]))})"


def initial_model(definition: FederatedTask, seed: int) -> Any:
    """Return the initial model. PyTorch, from which models draw their weights, is seeded, and not imported for this."""
    had_torch = seed_torch(seed)
    model: Any = definition.model()
    if not had_torch and seed_torch(seed):  # the method itself has imported it
        model = definition.model()
    return model


def seed_torch(seed: int) -> bool:
    """Seed PyTorch if it has been imported; return whether it has."""
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    torch.manual_seed(seed)
    return True
