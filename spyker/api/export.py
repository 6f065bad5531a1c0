"""A model for use without Spyker, from what a run or a deployment left of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from spyker.deploy.export import gather, mean
from spyker.records import RecordError, is_record
from spyker.records.files import replacing
from spyker.records.models import Model, read_model, write_model


def find_model(folders: Sequence[Path], server: int | None = None) -> tuple[Model, list[str]]:
    """The model in a run's record, or in the state folders of a deployment's servers; and lines that say which."""
    if len(folders) == 1 and is_record(folders[0]):
        model = read_model(folders[0], server)
        told = ("algorithm", "task", "seed", "time", "server")
        return model, [", ".join(f"{key} {model.about[key]}" for key in told if key in model.about)]
    for folder in folders:
        if is_record(folder):
            raise RecordError(f"{folder} is the record of a run, which has a model of its own. Name it alone")
    models = gather(folders, server)
    return mean(models), [f"server {saved.server}: version {saved.version}, age {saved.age:g}" for saved in models]


def export(model: Model, out: Path, *, overwrite: bool = False) -> list[Path]:
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
