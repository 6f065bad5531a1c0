"""``spyker sweep``: the same scenario with many values of some keys."""

from __future__ import annotations

import argparse
from typing import Any

import spyker
from spyker.api.interrupts import Interrupted
from spyker.api.sweep import PICTURE
from spyker.cli.codes import INTERRUPTED
from spyker.cli.options import add_scenario_options, said, where
from spyker.config.scenario import parse_value
from spyker.config.sections import ScenarioError
from spyker.experiments.sweep import cells
from spyker.show.table import print_table


def add_sweep(commands: Any) -> None:
    """``spyker sweep``."""
    parser = commands.add_parser(
        "sweep",
        help="run a scenario with many values of some keys",
        description="Run all combinations of some values, several at a time. Runs that finished are never repeated: "
        "give the same --out with --resume to go on after an interruption, or to add values.",
    )
    add_scenario_options(parser, algorithm=True, engine=False)
    parser.add_argument(
        "--vary", action="append", default=[], metavar="SECTION.KEY=A,B,…", help="values of a key; may be repeated"
    )
    parser.add_argument("--seeds", type=int, default=1, metavar="K", help="so many seeds each; default: 1")
    add_many_options(parser)
    parser.set_defaults(command=command_sweep)


def add_many_options(parser: argparse.ArgumentParser) -> None:
    """How many runs are made."""
    parser.add_argument("--jobs", type=int, metavar="N", help="runs at the same time; default: one per core")
    parser.add_argument("--resume", action="store_true", help="keep the finished runs that --out holds already")


def command_sweep(args: argparse.Namespace) -> int:
    """Run all combinations and print a table of what came of them."""
    vary: dict[str, list[object]] = {}
    for text in args.vary:
        key, values = split_values(text)
        if key in vary:
            raise ScenarioError("--vary", f"names {key} twice", "Give all values of a key at once")
        vary[key] = values
    try:
        done = spyker.sweep(args.scenario, vary=vary, **said(args), **where(args))
    except Interrupted as stop:
        print(stop)
        return INTERRUPTED
    print_table(*cells(done.rows), words=len(vary))
    print(f"all numbers: {done.folder / 'sweep.csv'}  ·  records: {done.folder / 'runs'}/")
    if (done.folder / PICTURE).exists():
        print(f"plot: {done.folder / PICTURE}  ·  to draw curves: spyker plot {done.folder}")
    return 0


def split_values(text: str) -> tuple[str, list[object]]:
    """``key=a,b,c`` as a key and its values. Commas inside brackets and quotes do not separate."""
    key, equals, rest = text.partition("=")
    if not equals or not key.strip() or not rest.strip():
        raise ScenarioError(f"--vary {text}", "has no values", "Write --vary section.key=a,b,c")
    parts, depth, quote = [""], 0, ""
    for char in rest:
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        depth += (char in "[{") - (char in "]}")
        if char == "," and depth == 0 and not quote:
            parts.append("")
        else:
            parts[-1] += char
    values = [parse_value(part.strip()) for part in parts]
    if "" in values:
        raise ScenarioError(f"--vary {text}", "has an empty value", "Write --vary section.key=a,b,c")
    return key.strip(), values
