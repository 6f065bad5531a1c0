"""``spyker run`` and ``spyker compare``."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import spyker
from spyker.algorithms.builtin import COMPARED
from spyker.api.compare import Comparison
from spyker.api.datasets import data_from
from spyker.api.output_folders import new_folder
from spyker.api.read_scenario import read_scenario
from spyker.api.result import Run
from spyker.api.run import short
from spyker.cli.codes import INTERRUPTED
from spyker.cli.dash import Dashboard, add_dashboard
from spyker.cli.help import examples
from spyker.cli.options import add_scenario_options, run_arguments, scenario_arguments
from spyker.cli.output import add_json
from spyker.config.privacy_settings import CLIENT
from spyker.errors import Interrupted
from spyker.plots.run_dicts import as_dict
from spyker.plots.run_groups import RunGroups, group_runs
from spyker.plots.table import print_table, rows
from spyker.plots.warning_lines import warning_lines
from spyker.records.model_files import model_path


def add_run(commands: Any) -> None:
    """``spyker run``."""
    parser = commands.add_parser("run", help="run one algorithm in the emulator")
    add_scenario_options(parser, algorithm=True)
    add_dashboard(parser)
    add_json(parser)
    examples(
        parser,
        "spyker run --clients 200 --duration 60 --out runs/first",
        "spyker run my-world.toml --set stride.exchange-rounds=4 --seed 7",
        "spyker run --task own_task:spirals --algorithm fedasync",
    )
    parser.set_defaults(command=command_run)


def add_compare(commands: Any) -> None:
    """``spyker compare``."""
    parser = commands.add_parser(
        "compare", help="run several algorithms in the same world; print a table and write plots"
    )
    add_scenario_options(parser, algorithm=False)
    parser.add_argument("--algorithms", metavar="A,B,…", help=f"default: {','.join(COMPARED)}")
    parser.add_argument(
        "--seeds",
        type=int,
        default=1,
        metavar="K",
        help="number of seeds per algorithm, shown as mean and standard deviation; default: 1",
    )
    add_dashboard(parser)
    add_json(parser)
    examples(
        parser,
        "spyker compare --out runs/all",
        "spyker compare --algorithms stride,fedasync --seeds 5 --set training.delay-ms=heterogeneous",
        "spyker compare my-world.toml --json > numbers.json",
    )
    parser.set_defaults(command=command_compare)


def command_run(args: argparse.Namespace) -> int:
    """Run one scenario and print its results."""
    with Dashboard(args.dashboard) as page:
        if args.dashboard:
            page.show(folder_for(args))
        try:
            run, code = spyker.run(args.scenario, **scenario_arguments(args), **run_arguments(args)), 0
        except Interrupted as stop:
            run, code = stop.result, INTERRUPTED
        show_run(run, args)
        args.answer = as_dict(run.record)
        page.stay()
    return code


def folder_for(args: argparse.Namespace, algorithm: str | None = None) -> Path:
    """Return the folder of the record or records before the run starts."""
    if args.out is None:
        with data_from(args.data_dir):
            chosen = read_scenario(
                args.scenario, **scenario_arguments(args) | ({"algorithm": algorithm} if algorithm else {})
            )
        args.out = new_folder(f"{'compare' if algorithm else chosen.chosen.name}-{short(chosen)}")
    found: Path = args.out
    return found


def show_run(run: Run, args: argparse.Namespace) -> None:
    """Print the results of a run and the place of its record."""
    show_table(group_runs([run.record]))
    show_notes({str(run.folder): run.summary}, args)
    print(f"record: {run.folder}/  ·  plot: spyker plot {run.folder}")
    if model_path(run.folder).exists():
        print(f"model: {model_path(run.folder)}  ·  export: spyker export {run.folder}")


def command_compare(args: argparse.Namespace) -> int:
    """Run several algorithms and print a comparison."""
    began = time.monotonic()
    names = args.algorithms.split(",") if args.algorithms else None
    with Dashboard(args.dashboard) as page:
        if args.dashboard:
            page.show(folder_for(args, (names or COMPARED)[0]))
        try:
            runs, code = spyker.compare(names, args.scenario, **scenario_arguments(args), **run_arguments(args)), 0
        except Interrupted as stop:
            runs, code = stop.result, INTERRUPTED
        args.answer = {
            "runs": [as_dict(run.record) for run in runs.values()],
            "folder": runs.folder,
            "pictures": runs.pictures,
            "warning": runs.shown.warning or None,
        }
        show_comparison(runs, args, code, began)
        page.stay()
    return code


def show_comparison(runs: Comparison, args: argparse.Namespace, code: int, began: float) -> None:
    """Print the results of a comparison and the places of its plots."""
    show_table(runs.shown)
    show_notes({name: run.summary for name, run in runs.items()}, args)
    duration = next(iter(runs.values())).scenario["duration"]
    if code:
        print("stopped; the remaining runs are missing")
    else:
        times = f"{len(runs.shown.lines)} algorithms" + (f" × {args.seeds} seeds" if args.seeds > 1 else "")
        print(f"{duration:g} virtual seconds × {times} in {time.monotonic() - began:.0f} s")
    print("plots:")
    for picture in runs.pictures:
        print(f"  {picture}")


def show_notes(summaries: Mapping[str, Mapping[str, Any] | None], args: argparse.Namespace) -> None:
    """Print the privacy costs and the warnings of runs; with ``--quiet`` the warnings, to standard error."""
    for name, summary in summaries.items():
        if spent := (summary or {}).get("privacy"):
            whom = "every client" if spent["unit"] == CLIENT else f"every {spent['unit']} of a client"
            print(
                f"privacy of {name}: {whom} has at most ε = {spent['epsilon']:.3f} with "
                f"δ = {spent['delta']:g}, after up to {spent['trainings']:,} trainings"
            )
    quiet = args.quiet and not args.json  # with --json they are in the document
    for note in warning_lines(summaries):
        print(f"spyker: {note}" if quiet else note, file=sys.stderr if quiet else sys.stdout)


def show_table(shown: RunGroups) -> None:
    """Print the table of runs and its caveats."""
    print_table(*rows(shown))
    if shown.warning:
        print(f"spyker: {shown.warning}", file=sys.stderr)
