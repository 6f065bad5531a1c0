"""``spyker run`` and ``spyker compare``."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

import spyker
from spyker.api.interrupts import Interrupted
from spyker.api.result import Run
from spyker.cli.codes import INTERRUPTED
from spyker.cli.options import add_scenario_options, said, where
from spyker.protocol.registry import COMPARED
from spyker.records.models import model_path
from spyker.records.saves import SAVE
from spyker.show.runs import Shown, together
from spyker.show.table import print_table, rows


def add_run(commands: Any) -> None:
    """``spyker run``."""
    parser = commands.add_parser("run", help="run one algorithm in the emulated world")
    add_scenario_options(parser, algorithm=True)
    parser.add_argument("--resume", action="store_true", help="go on with the interrupted run in --out")
    parser.set_defaults(command=command_run)


def add_compare(commands: Any) -> None:
    """``spyker compare``."""
    parser = commands.add_parser("compare", help="run several algorithms in the same world; table and plots")
    add_scenario_options(parser, algorithm=False)
    parser.add_argument("--algorithms", metavar="A,B,…", help=f"default: {','.join(COMPARED)}")
    parser.add_argument(
        "--seeds", type=int, default=1, metavar="K", help="so many seeds each, shown as mean and range; default: 1"
    )
    parser.set_defaults(command=command_compare)


def command_run(args: argparse.Namespace) -> int:
    """Run one scenario and say how it went."""
    try:
        run, code = spyker.run(args.scenario, **said(args), **where(args)), 0
    except Interrupted as stop:
        run, code = stop.result, INTERRUPTED
    show_run(run)
    return code


def show_run(run: Run) -> None:
    """Say how a run went, and where its record is."""
    show_table(together([run.record]))
    print(f"record: {run.folder}/  ·  to draw it: spyker plot {run.folder}")
    if (run.folder / SAVE).exists():
        print(f"not at its end; to go on: spyker run --resume --out {run.folder}")
    if model_path(run.folder).exists():
        print(f"model: {model_path(run.folder)}  ·  for PyTorch: spyker export {run.folder}")


def command_compare(args: argparse.Namespace) -> int:
    """Run several algorithms in one world, one after the other."""
    began = time.monotonic()
    names = args.algorithms.split(",") if args.algorithms else None
    try:
        runs, code = spyker.compare(names, args.scenario, **said(args), **where(args)), 0
    except Interrupted as stop:
        runs, code = stop.result, INTERRUPTED
    show_table(runs.shown)
    duration = next(iter(runs.values())).scenario["duration"]
    if code:
        print("stopped; what was not run is missing")
    else:
        times = f"{len(runs.shown.lines)} algorithms" + (f" × {args.seeds} seeds" if args.seeds > 1 else "")
        print(f"{duration:g} virtual seconds × {times} in {time.monotonic() - began:.0f} s")
    print("plots:")
    for picture in runs.pictures:
        print(f"  {picture}")
    return code


def show_table(shown: Shown) -> None:
    """Print the table of some runs, and what to keep in mind."""
    print_table(*rows(shown))
    if shown.warning:
        print(f"spyker: {shown.warning}", file=sys.stderr)
