"""From the checkpoints of servers to a model that anybody can use.

A checkpoint's numbers say what its weights mean, so that neither the task nor its data is needed: ``"id"``, the
server's number; ``"layout"``, names and shapes as ``layout_numbers`` in :mod:`~spyker.net.server_config` gives them;
and, as part of the protocol's state under ``"server"``, ``"age"`` and ``"version"``. Its vector ``"weights"`` is the
model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from spyker.errors import CheckpointError
from spyker.net.checkpoints import latest
from spyker.records.model_files import ModelFile
from spyker.tasks.layout import Layout
from spyker.vectors import Vector, average


@dataclass(frozen=True, slots=True, eq=False)
class SavedModel:
    """A server's model, as its latest checkpoint has it."""

    folder: Path
    server: int
    age: float
    version: int
    layout: Layout
    digest: str
    """That of the layout; a checkpoint of an earlier version has none."""
    weights: Vector


def read_saved(folder: Path) -> SavedModel:
    """The latest model in a server's state folder. The server may be running."""
    checkpoint = latest(folder)
    if checkpoint is None:
        raise CheckpointError(f"{folder} holds no checkpoint. Name the state folder of a server that has saved")
    numbers = checkpoint.numbers
    try:
        state, layout = numbers["server"], numbers["layout"]
        return SavedModel(
            folder,
            numbers["id"],
            state["age"],
            state["version"],
            Layout(tuple(layout["names"]), tuple(tuple(shape) for shape in layout["shapes"])),
            layout.get("digest", ""),
            checkpoint.vectors["weights"],
        )
    except KeyError as error:
        raise CheckpointError(f"the checkpoint in {folder} has no {error}. Name the state folder of a server") from None


def gather(folders: Sequence[Path], server: int | None = None) -> list[SavedModel]:
    """The models in some state folders, or that of one server among them, all of one layout."""
    models = [read_saved(folder) for folder in folders]
    if server is not None:
        here = [model.server for model in models]
        models = [model for model in models if model.server == server]
        if not models:
            raise CheckpointError(f"none of these folders is server {server}'s. Name one of {sorted(set(here))}")
    seen: dict[int, Path] = {}
    for model in models:
        if model.server in seen:
            raise CheckpointError(
                f"{seen[model.server]} and {model.folder} are both server {model.server}'s. Name each server once"
            )
        seen[model.server] = model.folder
        if model.layout != models[0].layout:
            raise CheckpointError(
                f"{models[0].folder} and {model.folder} hold different models. Name servers of one deployment"
            )
    return models


def mean(models: Sequence[SavedModel]) -> ModelFile:
    """The mean of some models; of one, its own weights to the bit."""
    weights = models[0].weights if len(models) == 1 else average([model.weights for model in models])
    origin = ", ".join(f"server {model.server} at version {model.version}" for model in models)
    return ModelFile(models[0].layout.parts(weights), {"spyker": origin})
