"""Export of models from the checkpoints of servers.

Neither the task nor its data is needed. A checkpoint's numbers contain ``"id"``, the server's number; ``"layout"``,
names and shapes (``layout_numbers`` of :mod:`~spyker.net.server_config`); and under ``"server"`` the ``"age"`` and
``"version"``. Its vector ``"weights"`` is the model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec

from spyker.errors import CheckpointError
from spyker.net.checkpoints import latest
from spyker.records.model_files import ModelFile
from spyker.tasks.layout import Layout
from spyker.vectors import Vector, average


class _Server(msgspec.Struct):
    age: float
    version: int


class _Layout(msgspec.Struct):
    names: list[str]
    shapes: list[tuple[Annotated[int, msgspec.Meta(ge=0)], ...]]
    digest: str


class _Numbers(msgspec.Struct):
    """The numbers of a checkpoint that an export needs."""

    id: int
    server: _Server
    layout: _Layout


@dataclass(frozen=True, slots=True, eq=False)
class SavedModel:
    """The model in a server's latest checkpoint."""

    folder: Path
    server: int
    age: float
    version: int
    layout: Layout
    digest: str
    """Digest of the layout."""
    weights: Vector


def read_saved(folder: Path) -> SavedModel:
    """Return the latest model in a server's state folder. The server may be running.

    Raises:
        CheckpointError: there is no readable checkpoint.

    """
    checkpoint = latest(folder)
    if checkpoint is None:
        raise CheckpointError(f"{folder} holds no checkpoint. Give the state folder of a server that has saved one")
    try:
        numbers = msgspec.convert(checkpoint.numbers, _Numbers)
        layout, weights = numbers.layout, checkpoint.vectors["weights"]
        shapes = tuple(layout.shapes)
        if len(layout.names) != len(shapes) or sum(map(math.prod, shapes)) != weights.size:
            raise ValueError("its layout is not that of its weights")
    except (KeyError, ValueError) as error:
        problem = f"no {error}" if isinstance(error, KeyError) else error
        raise CheckpointError(
            f"the checkpoint in {folder} cannot be used ({problem}). Give the state folder of a server"
        ) from None
    state = numbers.server
    return SavedModel(
        folder, numbers.id, state.age, state.version, Layout(tuple(layout.names), shapes), layout.digest, weights
    )


def gather(folders: Sequence[Path], server: int | None = None) -> list[SavedModel]:
    """Return the models in state folders, or only that of one server, after checking that their layouts are equal."""
    models = [read_saved(folder) for folder in folders]
    if server is not None:
        found = sorted({model.server for model in models})
        models = [model for model in models if model.server == server]
        if not models:
            raise CheckpointError(f"none of these folders is server {server}'s. Choose one of {found}")
    seen: dict[int, Path] = {}
    for model in models:
        if model.server in seen:
            raise CheckpointError(
                f"{seen[model.server]} and {model.folder} are both server {model.server}'s. Give each server once"
            )
        seen[model.server] = model.folder
        if model.layout != models[0].layout:
            raise CheckpointError(
                f"{models[0].folder} and {model.folder} hold different models. Give servers of one deployment"
            )
    return models


def mean(models: Sequence[SavedModel]) -> ModelFile:
    """Return the mean of models; a single model is returned unchanged, bit by bit."""
    weights = models[0].weights if len(models) == 1 else average([model.weights for model in models])
    origin = ", ".join(f"server {model.server} at version {model.version}" for model in models)
    return ModelFile(models[0].layout.parts(weights), {"spyker": origin})
