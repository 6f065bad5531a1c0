"""Export of the model of a run or a deployment, for use without Spyker."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from spyker.net.checkpoints import LOCK, NEWEST, numbers_in
from spyker.net.client_state import client_files, client_model
from spyker.net.model_export import gather, mean
from spyker.records import RecordError, is_record, records_below
from spyker.records.files import replacing
from spyker.records.model_files import ModelFile, read_model, write_model


def find_model(folders: Sequence[Path], server: int | None = None) -> tuple[ModelFile, list[str]]:
    """Read the model of a run record, of servers' state folders, or of a client's state folder.

    Args:
        folders: one run record, state folders of servers, or the folder or state folder of one client.
        server: the server whose model to read; ``None``: the average of all servers.

    Returns:
        The model, and lines that describe it.

    Raises:
        RecordError: a folder contains no model.
        ClientStateError: a client's state holds no model.

    """
    if len(folders) == 1 and (files := client_files(folders[0])):
        if len(files) > 1:
            raise RecordError(f"{folders[0]} holds several clients. Name one of them: {', '.join(map(str, files))}")
        model, line = client_model(files[0])
        return model, [line]
    if len(folders) == 1 and is_record(folders[0]):
        model = read_model(folders[0], server)
        keys = ("algorithm", "task", "seed", "time", "server")
        return model, [", ".join(f"{key} {model.about[key]}" for key in keys if key in model.about)]
    for folder in folders:
        if is_record(folder):
            raise RecordError(f"{folder} is a run record with its own model. Give it as the only folder")
        check_state(folder)
    models = gather(folders, server)
    return mean(models), [f"server {saved.server}: version {saved.version}, age {saved.age:g}" for saved in models]


def check_state(folder: Path) -> None:
    """Raise a ``RecordError`` unless the folder is a server's state folder."""
    remedy = "Name a folder made by spyker run --out, or a server's state folder"
    if not folder.exists():
        raise RecordError(f"{folder} does not exist. {remedy}")
    if not folder.is_dir():
        raise RecordError(f"{folder} is a file. {remedy}")
    if numbers_in(folder) or any((folder / name).exists() for name in (LOCK, NEWEST)):
        return
    runs = [path.relative_to(folder).as_posix() for path in records_below(folder)]
    if runs:
        raise RecordError(f"{folder} contains several runs. Name one of them: {', '.join(runs)}")
    raise RecordError(f"{folder} contains neither a run record nor a server's state. {remedy}")


def export(model: ModelFile, out: Path, *, overwrite: bool = False) -> list[Path]:
    """Write ``OUT.safetensors`` and, if PyTorch is installed, the state dict ``OUT.pt``, and return their paths."""
    endings = ("safetensors", "pt") if find_spec("torch") else ("safetensors",)
    paths = [out.with_name(f"{out.name}.{ending}") for ending in endings]
    for path in paths:
        if path.exists() and not overwrite:
            raise RecordError(f"{path} exists already. Choose another --out, or add --overwrite to replace it")
    write_model(paths[0], model)
    for path in paths[1:]:
        import torch  # slow to import

        with replacing(path) as temporary:
            torch.save({name: torch.from_numpy(part) for name, part in model.parts.items()}, temporary)
    return paths
