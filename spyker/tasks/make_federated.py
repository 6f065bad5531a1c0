"""Construction of a task from a :class:`~spyker.FederatedTask`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spyker.config.scenario import Training
from spyker.tasks.array_task import ArrayTask
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
    seed_generators(seed)
    model: Any = definition.model()
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


def seed_generators(seed: int) -> None:
    """Seed PyTorch, if it is installed: a model draws its initial weights from it."""
    try:
        import torch
    except ModuleNotFoundError:
        return
    torch.manual_seed(seed)
