"""The final models in a run record."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from spyker.config.scenario import Scenario
from spyker.records.model_files import ModelFile, model_path, write_model
from spyker.tasks.layout import Layout
from spyker.vectors import Vector, average
from spyker.version import __version__


def write_models(
    folder: Path, scenario: Scenario, layout: Layout, digest: str, t: float, models: Mapping[int, Vector]
) -> None:
    """Write the model of each server and their average.

    ``digest`` is the digest of the layout and ``t`` the time of the models. The metadata of the average states how
    many servers it includes.
    """
    wanted = len(scenario.placement().learners)
    whole = f"mean of {len(models)}" + (f" of {wanted}" if len(models) < wanted else "")

    def write(server: int | None, weights: Vector) -> None:
        about = {
            "spyker": __version__,
            "algorithm": scenario.algorithm,
            "task": scenario.task.name,
            "seed": str(scenario.seed),
            "time": repr(round(t, 9)),
            "server": whole if server is None else str(server),
            "layout": digest,
        }
        write_model(model_path(folder, server), ModelFile(layout.views(weights), about))

    for server, weights in models.items():
        write(server, weights)
    every = list(models.values())
    write(None, average(every) if len(every) > 1 else every[0])
