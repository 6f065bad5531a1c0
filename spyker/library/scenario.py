"""From what a caller says to a checked scenario."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from spyker.config.scenario import Scenario, dump, load
from spyker.learn.registry import resolve

Source: TypeAlias = str | Path | Mapping[str, Any] | Scenario | None
"""A scenario: a TOML file, what would stand in one, or one that was read before. ``None`` is the paper's."""


def read_scenario(
    source: Source = None,
    *,
    algorithm: str | None = None,
    task: str | None = None,
    clients: int | None = None,
    duration: float | None = None,
    seed: int | None = None,
    preset: str = "paper",
    settings: Mapping[str, object] | None = None,
    varied: Mapping[str, object] | None = None,
) -> Scenario:
    """The scenario of ``source`` with everything else laid over it, ``varied`` last of all, checked."""
    if isinstance(source, Scenario):
        source = tomllib.loads(dump(source))
    elif isinstance(source, str):
        source = Path(source)
    direct = {"algorithm": algorithm, "duration": duration, "seed": seed}
    said = {key: value for key, value in direct.items() if value is not None}
    overrides = {**(settings or {}), **said, **(varied or {})}
    return resolve(load(source, overrides, task=task, clients=clients, preset=preset))
