"""From the checkpoints of servers to a model that anybody can use.

A checkpoint's numbers say what its weights mean, so that neither the task nor its data is needed: ``"id"``, the
server's number; ``"layout"``, names and shapes as ``layout_numbers`` in :mod:`~spyker.deploy.config` gives them; and,
as part of the protocol's state under ``"server"``, ``"age"`` and ``"version"``. Its vector ``"weights"`` is the model.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from spyker.deploy.checkpoints import CheckpointError, latest
from spyker.learn.torch_task import Layout
from spyker.vectors import Vector, average


@dataclass(frozen=True, slots=True, eq=False)
class Saved:
    """A server's model, as its latest checkpoint has it."""

    folder: Path
    server: int
    age: float
    version: int
    layout: Layout
    weights: Vector


def read_saved(folder: Path) -> Saved:
    """The latest model in a server's state folder. The server may be running."""
    checkpoint = latest(folder)
    if checkpoint is None:
        raise CheckpointError(f"{folder} holds no checkpoint. Name the state folder of a server that has saved")
    numbers = checkpoint.numbers
    try:
        state, layout = numbers["server"], numbers["layout"]
        return Saved(
            folder,
            numbers["id"],
            state["age"],
            state["version"],
            Layout(tuple(layout["names"]), tuple(tuple(shape) for shape in layout["shapes"])),
            checkpoint.vectors["weights"],
        )
    except KeyError as error:
        raise CheckpointError(f"the checkpoint in {folder} has no {error}. Name the state folder of a server") from None


def gather(folders: Sequence[Path], server: int | None = None) -> list[Saved]:
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


def state_dict(models: Sequence[Saved]) -> dict[str, Tensor]:
    """The mean of some models by the names of their parts; of one, its own weights to the bit."""
    weights = models[0].weights if len(models) == 1 else average([model.weights for model in models])
    parts = models[0].layout.state_dict(weights)
    return {name: part.clone(memory_format=torch.contiguous_format) for name, part in parts.items()}


def export(models: Sequence[Saved], out: Path, *, overwrite: bool = False) -> list[Path]:
    """Write ``OUT.safetensors`` and ``OUT.pt``, a PyTorch state dict."""
    paths = [out.with_name(f"{out.name}.{ending}") for ending in ("safetensors", "pt")]
    for path in paths:
        if path.exists() and not overwrite:
            raise CheckpointError(f"{path} exists already. Choose another --out, or add --overwrite to replace it")
    parts = state_dict(models)
    origin = ", ".join(f"server {m.server} at version {m.version}" for m in models)
    out.parent.mkdir(parents=True, exist_ok=True)
    write(paths[0], lambda path: save_file(parts, path, {"format": "pt", "spyker": origin}))
    write(paths[1], lambda path: torch.save(parts, path))
    return paths


def write(path: Path, save: Callable[[Path], object]) -> None:
    """Let ``save`` write a file such that a kill leaves the old one or the new one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        save(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
