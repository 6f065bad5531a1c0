"""The models that a deployment leaves in the record of its run, from its servers' last checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from spyker.config.scenario import Scenario
from spyker.errors import CheckpointError
from spyker.net.model_export import SavedModel, read_saved
from spyker.tasks.final_models import write_models


def write_checkpoint_models(states: Mapping[int, Path], scenario: Scenario, t: float, folder: Path) -> list[str]:
    """Write the models in some servers' state folders, and their mean, and return what is to be said of missing ones.

    A server whose state cannot be read takes nobody else's model with it.
    """
    found: dict[int, SavedModel] = {}
    missing = []
    for server, state in states.items():
        try:
            found[server] = read_saved(state)
        except (CheckpointError, OSError) as error:
            missing.append(f"the model of server {server} is missing: {error}")
    if found:
        layout, digest = next((saved.layout, saved.digest) for saved in found.values())
        write_models(folder, scenario, layout, digest, t, {i: saved.weights for i, saved in found.items()})
    if found and missing:
        missing.append(f"model.safetensors is the mean of the other {len(found)}")
    return missing
