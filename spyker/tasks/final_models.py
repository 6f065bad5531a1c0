"""The final models in a run record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from spyker.config.scenario import Scenario
from spyker.records.model_files import ModelFile, model_path, write_model
from spyker.tasks.layout import Layout
from spyker.vectors import Vector, accumulate
from spyker.version import __version__


def write_models(
    folder: Path,
    scenario: Scenario,
    layout: Layout,
    digest: str,
    t: float,
    servers: Sequence[int],
    model_of: Callable[[int], Vector],
) -> None:
    """Write the model of each server and their average, one after the other.

    ``digest`` is the digest of the layout and ``t`` the time of the models. The metadata of the average states how
    many servers it includes.
    """
    wanted = len(scenario.placement().learners)
    whole = f"mean of {len(servers)}" + (f" of {wanted}" if len(servers) < wanted else "")

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

    total: Vector | None = None
    for server in servers:
        weights = model_of(server)
        write(server, weights)
        if len(servers) == 1:
            total = weights
            continue
        total = np.zeros(weights.shape, np.float32) if total is None else total
        accumulate(total, weights, 1 / len(servers))  # as average() does, with one model at a time in memory
    assert total is not None
    write(None, total)
