"""From what a caller says to a checked scenario."""

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
"""A scenario: a TOML file, what would stand in one, or one that was read before. ``None`` is the paper's world."""

TaskLike: TypeAlias = str | Callable[..., Task] | Task
"""A task: its name, a function ``(clients, seed, training, **options)`` that makes it, or the task itself."""

AlgorithmLike: TypeAlias = str | type[Server]
"""An algorithm: its name, or a class that extends :class:`spyker.Server`."""


def algorithm_name(algorithm: AlgorithmLike) -> str:
    """The name by which a scenario finds an algorithm."""
    if isinstance(algorithm, str):
        return algorithm
    if not (isinstance(algorithm, type) and issubclass(algorithm, Server)):
        raise UsageError(
            "algorithm", f"{algorithm!r:.60} is not allowed", "Give a name, or a class that extends spyker.Server"
        )
    find_algorithm.cache_clear()  # a notebook's cell may have made a new class of the same name
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
    """The scenario of ``source`` with everything else laid over it, ``varied`` last of all, checked.

    There may be parameters of ``others``, algorithms that run in the same world at another time.
    """
    if isinstance(source, Scenario):
        if task is None and source.task.given is not None:
            task = source.task.given.value
        source = tomllib.loads(dump(source))
    elif isinstance(source, str):
        source = Path(source)
    name = None if algorithm is None else algorithm_name(algorithm)
    direct = {"algorithm": name, "duration": duration, "seed": seed}
    said = {key: value for key, value in direct.items() if value is not None}
    overrides = {**(settings or {}), **said, **(varied or {})}
    called = None if task is None else choose(task).name
    beside = [algorithm_name(other) for other in others]
    scenario = load(source, overrides, task=called, clients=clients, preset=preset, others=beside)
    if task is not None:
        scenario = replace(scenario, task=choose(task, scenario.task.options))
    return resolve(scenario)
