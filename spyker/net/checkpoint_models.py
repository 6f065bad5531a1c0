"""Final models of a deployment, from its servers' last checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from spyker.config.scenario import Scenario
from spyker.errors import CheckpointError
from spyker.net.model_export import SavedModel, read_saved
from spyker.tasks.final_models import write_models


def write_checkpoint_models(states: Mapping[int, Path], scenario: Scenario, t: float, folder: Path) -> list[str]:
    """Write the models of servers and their mean into a run record.

    Args:
        states: state folders by server.
        scenario: the scenario.
        t: time of the models.
        folder: folder of the run record.

    Returns:
        Warnings about models that could not be read.

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
        write_models(folder, scenario, layout, digest, t, list(found), lambda i: found[i].weights)
    if found and missing:
        missing.append(f"model.safetensors is the mean of the other {len(found)}")
    return missing
