"""A model for use without Spyker, from what a run or a deployment left of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from spyker.net.checkpoints import LOCK, NEWEST, numbers_in
from spyker.net.model_export import gather, mean
from spyker.records import RecordError, is_record, records_below
from spyker.records.files import replacing
from spyker.records.model_files import ModelFile, read_model, write_model


def find_model(folders: Sequence[Path], server: int | None = None) -> tuple[ModelFile, list[str]]:
    """The model in a run's record, or in the state folders of a deployment's servers; and lines that say which."""
    if len(folders) == 1 and is_record(folders[0]):
        model = read_model(folders[0], server)
        told = ("algorithm", "task", "seed", "time", "server")
        return model, [", ".join(f"{key} {model.about[key]}" for key in told if key in model.about)]
    for folder in folders:
        if is_record(folder):
            raise RecordError(f"{folder} is the record of a run, which has a model of its own. Name it alone")
        check_state(folder)
    models = gather(folders, server)
    return mean(models), [f"server {saved.server}: version {saved.version}, age {saved.age:g}" for saved in models]


def check_state(folder: Path) -> None:
    """Refuse a folder that no server keeps its state in; whether it can be read is another question."""
    remedy = "Name a folder made by spyker run --out, or a server's state folder"
    if not folder.exists():
        raise RecordError(f"{folder} does not exist. {remedy}")
    if not folder.is_dir():
        raise RecordError(f"{folder} is a file. {remedy}")
    if numbers_in(folder) or any((folder / name).exists() for name in (LOCK, NEWEST)):
        return
    runs = [path.relative_to(folder).as_posix() for path in records_below(folder)]
    if runs:
        raise RecordError(f"{folder} holds runs. Name one of them: {', '.join(runs)}")
    raise RecordError(f"{folder} holds neither a run's record nor a server's state. {remedy}")


def export(model: ModelFile, out: Path, *, overwrite: bool = False) -> list[Path]:
    """Write ``OUT.safetensors`` and ``OUT.pt``, a PyTorch state dict."""
    import torch  # only now: it takes a second to import

    paths = [out.with_name(f"{out.name}.{ending}") for ending in ("safetensors", "pt")]
    for path in paths:
        if path.exists() and not overwrite:
            raise RecordError(f"{path} exists already. Choose another --out, or add --overwrite to replace it")
    write_model(paths[0], model)
    with replacing(paths[1]) as temporary:
        torch.save({name: torch.from_numpy(part) for name, part in model.parts.items()}, temporary)
    return paths
