"""Construction of a checked scenario from the arguments of the API."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from spyker.config.algorithms import find_algorithm
from spyker.config.scenario import Scenario, dump, load
from spyker.errors import UsageError
from spyker.protocol.server import Server
from spyker.tasks.registry import choose, resolve
from spyker.tasks.task import Task

Source: TypeAlias = str | Path | Mapping[str, Any] | Scenario | None
"""A scenario: a TOML file, a dictionary with the same content, or a ``Scenario``. ``None``: the paper's world."""

TaskLike: TypeAlias = str | Callable[..., Task] | Task
"""A task: its name, a factory ``(clients, seed, training, **options)``, or a ``Task``."""

AlgorithmLike: TypeAlias = str | type[Server]
"""An algorithm: its name, or a subclass of :class:`spyker.Server`."""


def algorithm_name(algorithm: AlgorithmLike) -> str:
    """Return the name of an algorithm in a scenario."""
    if isinstance(algorithm, str):
        return algorithm
    if not (isinstance(algorithm, type) and issubclass(algorithm, Server)):
        raise UsageError("algorithm", f"{algorithm!r:.60} is not allowed", "Give a name or a subclass of spyker.Server")
    find_algorithm.cache_clear()  # a notebook may have redefined the class
    return f"{algorithm.__module__}:{algorithm.__qualname__}"


def read_scenario(
    source: Source = None,
    *,
    algorithm: AlgorithmLike | None = None,
    task: TaskLike | None = None,
    clients: int | None = None,
    duration: float | None = None,
    seed: int | None = None,
    preset: str = "paper",
    settings: Mapping[str, object] | None = None,
    varied: Mapping[str, object] | None = None,
    others: Sequence[AlgorithmLike] = (),
) -> Scenario:
    """Return the checked scenario of ``source``, overridden by the other arguments, ``varied`` last.

    The source may have parameters of ``others``, further algorithms of a comparison.
    """
    if isinstance(source, Scenario):
        if task is None and source.task.given is not None:
            task = source.task.given.value
        source = tomllib.loads(dump(source))
    elif isinstance(source, str):
        source = Path(source)
    name = None if algorithm is None else algorithm_name(algorithm)
    direct = {"algorithm": name, "duration": duration, "seed": seed}
    given = {key: value for key, value in direct.items() if value is not None}
    overrides = {**(settings or {}), **given, **(varied or {})}
    task_name = None if task is None else choose(task).name
    other_names = [algorithm_name(other) for other in others]
    scenario = load(source, overrides, task=task_name, clients=clients, preset=preset, others=other_names)
    if task is not None:
        scenario = replace(scenario, task=choose(task, scenario.task.options))
    return resolve(scenario)
