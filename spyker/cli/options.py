"""The options that commands share, and how they become a scenario."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spyker.api.callbacks import find_callback
from spyker.config.algorithms import NAMES
from spyker.config.presets import PRESETS
from spyker.config.scenario import Scenario, parse_value
from spyker.engines.start_engine import ENGINES
from spyker.errors import UsageError
from spyker.tasks.data.load import VARIABLE
from spyker.tasks.task_names import BUILT_IN

SCENARIO_HELP = "a TOML file; default: the paper's world"
ALGORITHM_HELP = f"{', '.join(NAMES.known())}, or module:Class; default: the scenario's, or {Scenario().algorithm}"
FLOWER = "flower"
TASK_HELP = f"{', '.join(BUILT_IN)}, module:function, or the name of an entry point"


def add_scenario_options(parser: argparse.ArgumentParser, *, algorithm: bool, engine: bool = True) -> None:
    """Add the options of a scenario and of its engine."""
    parser.add_argument("scenario", nargs="?", type=Path, metavar="SCENARIO", help=SCENARIO_HELP)
    if algorithm:
        parser.add_argument("--algorithm", metavar="A", help=ALGORITHM_HELP)
    parser.add_argument("--task", metavar="T", help=TASK_HELP)
    add_flower(parser)
    parser.add_argument(
        "--clients", type=int, metavar="N", help="total number of clients, spread evenly over the regions"
    )
    parser.add_argument(
        "--duration", type=float, metavar="S", help="length of the run in seconds, virtual ones if emulated"
    )
    parser.add_argument("--seed", type=int, metavar="N", help="seed of all random numbers")
    parser.add_argument(
        "--preset", default="paper", metavar="P", help=f"defaults for keys that are not set: {' or '.join(PRESETS)}"
    )
    if engine:
        add_engine(parser)
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="folder of the run record; default: a new folder in runs/"
    )
    add_data_dir(parser)
    add_set(parser)


def add_flower(parser: argparse.ArgumentParser) -> None:
    """Add ``--flower``."""
    parser.add_argument("--flower", metavar="APP", help="a Flower ClientApp as the task, as package.module:app")


def add_engine(parser: argparse.ArgumentParser) -> None:
    """Add the options of models, engine and ``--overwrite``."""
    add_models(parser)
    parser.add_argument(
        "--callback", action="append", default=[], metavar="C[=ARGUMENT]",
        help="a callback: module:function, or the name of an entry point; may be repeated",
    )  # fmt: skip
    parser.add_argument("--workers", type=int, metavar="N", help="training processes; default: one per core")
    parser.add_argument("--engine", choices=ENGINES, default="local", help="where training runs; default: local")
    parser.add_argument("--ray-address", metavar="ADDRESS", help="a Ray cluster; default: one started on this machine")
    parser.add_argument("--overwrite", action="store_true", help="replace the record in --out")


def add_models(parser: argparse.ArgumentParser) -> None:
    """Add ``--initial-model`` and ``--no-model``."""
    parser.add_argument("--initial-model", type=Path, metavar="FILE", help="initial model; a safetensors file")
    parser.add_argument("--no-model", action="store_false", dest="model", help="do not write models to the record")


def add_data_dir(parser: argparse.ArgumentParser) -> None:
    """Add ``--data-dir``."""
    parser.add_argument("--data-dir", metavar="DIR", help=f"folder with datasets; default: {VARIABLE}, if set")


def add_set(parser: argparse.ArgumentParser) -> None:
    """Add ``--set``."""
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="SECTION.KEY=VALUE",
        dest="settings",
        help="set a key of the scenario; may be repeated",
    )


def read_settings(texts: Sequence[str]) -> dict[str, object]:
    """Parse the values of ``--set``, by key."""
    pairs = (split_pair("--set", text, "section.key=value") for text in texts)
    return {key: parse_value(value.strip()) for key, value in pairs}


def split_pair(option: str, text: str, form: str) -> tuple[str, str]:
    """Split ``key=value``, which was given to an option; ``form`` shows how to write it."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise UsageError(f"{option} {text}", "has no value", f"Write {option} {form}")
    return key.strip(), value


def scenario_arguments(args: argparse.Namespace) -> dict[str, Any]:
    """Return the scenario arguments as keywords of the API."""
    names = ("algorithm", "task", "clients", "duration", "seed", "preset")
    return {name: getattr(args, name) for name in names if hasattr(args, name)} | task_arguments(args)


def task_arguments(args: argparse.Namespace) -> dict[str, Any]:
    """Return the settings, and the task if ``--flower`` is given."""
    settings, app = read_settings(args.settings), getattr(args, "flower", None)
    if app is None:
        return {"settings": settings}
    if getattr(args, "task", None) not in (None, FLOWER):
        raise UsageError("--task", f"{args.task} is not allowed: --flower names another task", "Leave one of them out")
    return {"task": FLOWER, "settings": {"task.app": app} | settings}


def run_arguments(args: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments about files, engine and output as keywords of the API."""
    files = ("out", "overwrite", "initial_model", "model", "data_dir")
    names = (*files, "workers", "engine", "ray_address", "jobs", "resume", "seeds")
    given = {name: getattr(args, name) for name in names if hasattr(args, name)}
    if hasattr(args, "callback"):
        given["callbacks"] = [find_callback(text) for text in args.callback]
    return given | {"progress": not args.quiet}
