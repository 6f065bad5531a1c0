"""Model files of a run record: ``model.safetensors``, the average of the servers, and one file per server.

Tensors have the task's names and shapes. The metadata of each file describes its run.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from safetensors import SafetensorError, safe_open

from spyker.errors import RecordError
from spyker.protocol.codec import Array
from spyker.records.files import is_record, replacing
from spyker.records.tensors import TYPES, write_tensors
from spyker.untrusted_files import check_regular

MODEL, SERVERS = "model.safetensors", "models"


class ModelFile(NamedTuple):
    """The content of a file: the tensors of a model by name, and metadata."""

    parts: dict[str, Array]
    about: dict[str, str]


def model_path(folder: Path, server: int | None = None) -> Path:
    """Return the path of the averaged model, or of a server's model, in a record."""
    return folder / MODEL if server is None else folder / SERVERS / f"server-{server}.safetensors"


def write_model(path: Path, model: ModelFile) -> None:
    """Write a model file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        write_tensors(temporary, model.parts, {"format": "pt", **model.about})  # as PyTorch's tools expect


def read_model(folder: Path, server: int | None = None) -> ModelFile:
    """Read the averaged model, or a server's model, of a record."""
    if not is_record(folder):
        raise RecordError(f"{folder} is not a run record. Name a folder made by spyker run --out")
    path = model_path(folder, server)
    if not path.exists():
        raise RecordError(missing(folder, server))
    try:
        check_regular(path)
        with safe_open(path, "numpy") as file:
            about = dict(file.metadata() or {})
            about.pop("format", None)
            parts = {name: file.get_tensor(name) for name in file.offset_keys()}
        strange = next((name for name, part in parts.items() if part.dtype.str[1:] not in TYPES), None)
        if strange is not None:
            raise ValueError(f"{strange} has the type {parts[strange].dtype}")
        return ModelFile(parts, about)
    except (OSError, SafetensorError, ValueError, TypeError, AttributeError) as error:
        problem = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise RecordError(f"{path} cannot be read ({problem}). Restore it, or make the run again") from None


def missing(folder: Path, server: int | None) -> str:
    """Return the error message for a missing model."""
    if model_path(folder).exists():
        there = sorted(int(p.stem.removeprefix("server-")) for p in (folder / SERVERS).glob("server-*.safetensors"))
        return f"{folder} has no model of server {server}. Choose one of {', '.join(map(str, there))}"
    return (
        f"{folder} contains no model: the run was killed, is in progress, was made with --no-model or by sweep, "
        "reproduce or race, or is merged from servers' records. Repeat the run (spyker run "
        f"{folder / 'scenario.toml'}), or name the state folders of the deployment's servers"
    )
