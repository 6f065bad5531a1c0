"""The models of a run: a record has ``model.safetensors``, the mean of its servers', and one file per server.

Parts have the names and shapes that the task knows them by. What run a model is from stands in the file itself, so
that it can be taken away from its record.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from safetensors import SafetensorError, safe_open

from spyker.errors import RecordError
from spyker.protocol.codec import Array
from spyker.records.files import is_record, replacing
from spyker.records.tensors import write_tensors

MODEL, SERVERS = "model.safetensors", "models"


class ModelFile(NamedTuple):
    """What a file holds: the parts of a model by name, and what is said about them."""

    parts: dict[str, Array]
    about: dict[str, str]


def model_path(folder: Path, server: int | None = None) -> Path:
    """Where a record has the mean of its servers' models, or that of one server."""
    return folder / MODEL if server is None else folder / SERVERS / f"server-{server}.safetensors"


def write_model(path: Path, model: ModelFile) -> None:
    """Write a file; a kill at any moment leaves the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        write_tensors(temporary, model.parts, {"format": "pt", **model.about})  # as PyTorch's tools want it


def read_model(folder: Path, server: int | None = None) -> ModelFile:
    """The model that a run left: the mean of its servers', or that of one server."""
    if not is_record(folder):
        raise RecordError(f"{folder} is not a run record. Name a folder made by spyker run --out")
    path = model_path(folder, server)
    if not path.exists():
        raise RecordError(missing(folder, server))
    try:
        with safe_open(path, "numpy") as file:
            about = dict(file.metadata() or {})
            about.pop("format", None)
            return ModelFile({name: file.get_tensor(name) for name in file.offset_keys()}, about)
    except (OSError, SafetensorError) as error:
        raise RecordError(f"{path} cannot be read ({error}). Restore it, or make the run again") from None


def missing(folder: Path, server: int | None) -> str:
    """Why a record does not have a model, and what to do about it."""
    if model_path(folder).exists():
        there = sorted(int(p.stem.removeprefix("server-")) for p in (folder / SERVERS).glob("server-*.safetensors"))
        return f"{folder} has no model of server {server}. Choose one of {', '.join(map(str, there))}"
    return (
        f"{folder} holds no model: its run was killed or goes on still, was made with --no-model or as one of many "
        "(sweep, reproduce, race), or is merged of servers' records. Make the run again (spyker run "
        f"{folder / 'scenario.toml'}), or name the state folders of the deployment's servers"
    )
