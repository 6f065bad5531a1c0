"""The options that commands share, and how they become a scenario."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from spyker.config.presets import PRESETS
from spyker.config.scenario import Scenario, load, parse_value
from spyker.config.sections import ScenarioError
from spyker.learn.data.load import VARIABLE, data_folder
from spyker.learn.names import BUILT_IN
from spyker.learn.registry import resolve
from spyker.learn.start import ENGINES


def add_scenario_options(parser: argparse.ArgumentParser, *, algorithm: bool, engine: bool = True) -> None:
    """What can be said about a scenario on the command line, and about where it runs."""
    parser.add_argument("scenario", nargs="?", type=Path, metavar="SCENARIO", help="a TOML file; default: the paper's")
    if algorithm:
        parser.add_argument("--algorithm", metavar="A", help="spyker, sync-spyker, fedasync, fedavg or hierfavg")
    parser.add_argument("--task", metavar="T", help=f"{', '.join(BUILT_IN)}, an installed one, or module:function")
    parser.add_argument("--clients", type=int, metavar="N", help="so many in all, spread evenly over the regions")
    parser.add_argument("--duration", type=float, metavar="S", help="virtual seconds")
    parser.add_argument("--seed", type=int, metavar="N", help="everything random follows from it")
    parser.add_argument(
        "--preset", choices=list(PRESETS), default="paper", help="what holds where nothing else is said"
    )
    if engine:
        add_engine(parser)
    parser.add_argument("--out", type=Path, metavar="DIR", help="where the record goes; default: a new folder in runs/")
    add_data_dir(parser)
    add_set(parser)


def add_engine(parser: argparse.ArgumentParser) -> None:
    """Where one run trains, and what may give way to its record."""
    parser.add_argument("--workers", type=int, metavar="N", help="training processes; default: one per core")
    parser.add_argument("--engine", choices=ENGINES, default="local", help="where training runs; default: local")
    parser.add_argument("--ray-address", metavar="ADDRESS", help="a Ray cluster; default: one started on this machine")
    parser.add_argument("--overwrite", action="store_true", help="replace the record that --out holds already")


def add_data_dir(parser: argparse.ArgumentParser) -> None:
    """Where the user keeps datasets."""
    parser.add_argument(
        "--data-dir", metavar="DIR", help=f"a folder with datasets; default: {VARIABLE}, if that is set"
    )


def use_data_dir(args: argparse.Namespace) -> None:
    """Let this process and its workers look into ``--data-dir``."""
    if args.data_dir is not None:
        os.environ[VARIABLE] = os.path.abspath(args.data_dir)
    data_folder()


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


def read_scenario(args: argparse.Namespace, more: Mapping[str, object] | None = None) -> Scenario:
    """The scenario file with everything on the command line laid over it, and ``more`` over that, checked."""
    overrides: dict[str, Any] = {}
    for setting in args.settings:
        key, equals, value = setting.partition("=")
        if not equals or not key:
            raise ScenarioError(f"--set {setting}", "has no value", "Write --set section.key=value")
        overrides[key.strip()] = parse_value(value.strip())
    direct = {"algorithm": getattr(args, "algorithm", None), "duration": args.duration, "seed": args.seed}
    overrides |= {key: value for key, value in direct.items() if value is not None}
    overrides |= more or {}
    preset = getattr(args, "preset", "paper")
    return resolve(load(args.scenario, overrides, task=args.task, clients=args.clients, preset=preset))


def default_out(name: str) -> Path:
    """A folder in ``runs/`` that does not exist yet."""
    folder, number = Path("runs") / name, 1
    while folder.exists():
        number += 1
        folder = Path("runs") / f"{name}-{number}"
    return folder


def require_deploy() -> None:
    """Say what to install, if the packages that only deployments need are not here."""
    missing = [name for name in ("cryptography", "grpc", "prometheus_client", "safetensors") if not find_spec(name)]
    if missing:
        raise ScenarioError(
            "this command", f"needs {', '.join(missing)}, not installed here", "Run pip install 'spyker-fl[deploy]'"
        )
