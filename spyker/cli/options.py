"""The options that commands share, and how they become a scenario."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from spyker.algorithms.builtin import ALGORITHMS
from spyker.api.choose_trackers import FORMS
from spyker.config.presets import PRESETS
from spyker.config.scenario import Scenario, parse_value
from spyker.engines.start_engine import ENGINES
from spyker.errors import UsageError
from spyker.tasks.data.load import VARIABLE
from spyker.tasks.task_names import BUILT_IN

SCENARIO_HELP = "a TOML file; default: the paper's world"
ALGORITHM_HELP = (
    f"{', '.join(ALGORITHMS)}, module:Class, or the name of an entry point; default: the scenario's, or "
    f"{Scenario().algorithm}"
)
FLOWER = "flower"
TASK_HELP = f"{', '.join(BUILT_IN)}, module:function, or the name of an entry point"


def add_scenario_options(parser: argparse.ArgumentParser, *, algorithm: bool, engine: bool = True) -> None:
    """What can be said about a scenario on the command line, and about where it runs."""
    parser.add_argument("scenario", nargs="?", type=Path, metavar="SCENARIO", help=SCENARIO_HELP)
    if algorithm:
        parser.add_argument("--algorithm", metavar="A", help=ALGORITHM_HELP)
    parser.add_argument("--task", metavar="T", help=TASK_HELP)
    add_flower(parser)
    parser.add_argument("--clients", type=int, metavar="N", help="so many in all, spread evenly over the regions")
    parser.add_argument("--duration", type=float, metavar="S", help="virtual seconds")
    parser.add_argument("--seed", type=int, metavar="N", help="everything random follows from it")
    parser.add_argument(
        "--preset", default="paper", metavar="P", help=f"what holds where nothing else is said: {' or '.join(PRESETS)}"
    )
    if engine:
        add_engine(parser)
    parser.add_argument("--out", type=Path, metavar="DIR", help="where the record goes; default: a new folder in runs/")
    add_follow(parser)
    add_data_dir(parser)
    add_set(parser)


def add_flower(parser: argparse.ArgumentParser) -> None:
    """A Flower app in place of a task."""
    parser.add_argument("--flower", metavar="APP", help="a Flower ClientApp as the task, as package.module:app")


def add_engine(parser: argparse.ArgumentParser) -> None:
    """What one run begins from and leaves, where it trains, and what may give way to its record."""
    add_models(parser)
    parser.add_argument("--workers", type=int, metavar="N", help="training processes; default: one per core")
    parser.add_argument("--engine", choices=ENGINES, default="local", help="where training runs; default: local")
    parser.add_argument("--ray-address", metavar="ADDRESS", help="a Ray cluster; default: one started on this machine")
    parser.add_argument("--overwrite", action="store_true", help="replace the record that --out holds already")


def add_models(parser: argparse.ArgumentParser) -> None:
    """What one run begins from, and leaves."""
    parser.add_argument("--initial-model", type=Path, metavar="FILE", help="begin from this model; a safetensors file")
    parser.add_argument("--no-model", action="store_false", dest="model", help="leave no models in the record")


def add_follow(parser: argparse.ArgumentParser) -> None:
    """Who else is told."""
    parser.add_argument(
        "--follow", action="append", default=[], metavar="WHO=WHERE",
        help=f"tell a tracker, too: {FORMS}; may be repeated",
    )  # fmt: skip


def add_data_dir(parser: argparse.ArgumentParser) -> None:
    """Where the user keeps datasets."""
    parser.add_argument(
        "--data-dir", metavar="DIR", help=f"a folder with datasets; default: {VARIABLE}, if that is set"
    )


def add_set(parser: argparse.ArgumentParser) -> None:
    """Any key at all."""
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="SECTION.KEY=VALUE",
        dest="settings",
        help="set any key of a scenario file; may be repeated",
    )


def read_settings(texts: Sequence[str]) -> dict[str, object]:
    """What ``--set`` says, by key."""
    settings = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise UsageError(f"--set {text}", "has no value", "Write --set section.key=value")
        settings[key.strip()] = parse_value(value.strip())
    return settings


def said(args: argparse.Namespace) -> dict[str, Any]:
    """What a command line says about a scenario, as the library's keywords."""
    names = ("algorithm", "task", "clients", "duration", "seed", "preset")
    return {name: getattr(args, name) for name in names if hasattr(args, name)} | what_is_learnt(args)


def what_is_learnt(args: argparse.Namespace) -> dict[str, Any]:
    """The settings, and the task if a Flower app takes its place."""
    settings, app = read_settings(args.settings), getattr(args, "flower", None)
    if app is None:
        return {"settings": settings}
    if getattr(args, "task", None) not in (None, FLOWER):
        raise UsageError("--task", f"is {args.task}, and --flower names another", "Leave one of them out")
    return {"task": FLOWER, "settings": {"task.app": app} | settings}


def where(args: argparse.Namespace) -> dict[str, Any]:
    """What a command line says about where things come from and go to, as the library's keywords."""
    names = (
        "out",
        "overwrite",
        "initial_model",
        "model",
        "workers",
        "engine",
        "ray_address",
        "data_dir",
        "jobs",
        "resume",
        "seeds",
        "follow",
    )
    given = {name: getattr(args, name) for name in names if hasattr(args, name)}
    return given | {"progress": not args.quiet}


def require_deploy() -> None:
    """Say what to install, if the packages that only deployments need are not here."""
    missing = [name for name in ("cryptography", "grpc", "prometheus_client") if not find_spec(name)]
    if missing:
        raise UsageError(
            "this command", f"needs {', '.join(missing)}, not installed here", "Run pip install 'spyker-fl[net]'"
        )
