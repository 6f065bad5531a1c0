"""Construction of a task from a :class:`~spyker.FederatedTask`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from spyker.config.scenario import Training
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
    model = initial_model(definition, seed)
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
