"""``spyker plot`` and ``spyker scenario``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from spyker.api.output_folders import OutputFolder
from spyker.cli.help import examples
from spyker.cli.output import add_json
from spyker.cli.run import show_table
from spyker.config.pings import read_pings
from spyker.config.scenario import dump, load
from spyker.plots.run_dicts import as_dict
from spyker.plots.run_groups import group_runs
from spyker.records import find_runs
from spyker.tasks.registry import resolve


def add_plot(commands: Any) -> None:
    """``spyker plot``."""
    parser = commands.add_parser("plot", help="plot runs")
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folder created by run, compare or sweep")
    parser.add_argument("--out", type=Path, metavar="DIR", help="output folder; default: the folder of the first RUN")
    add_json(parser)
    examples(
        parser,
        "spyker plot runs/first",
        "spyker plot runs/first runs/second/fedasync --out plots  # labelled by their differences",
        "spyker plot runs/rates  # a whole sweep",
    )
    parser.set_defaults(command=command_plot)


def command_plot(args: argparse.Namespace) -> int:
    """Plot runs, finished or in progress."""
    from spyker.plots.run_plots import plot_all  # Matplotlib is slow to import

    runs = [run for folder in args.runs for run in find_runs(folder)]
    shown = group_runs(runs)
    with OutputFolder(args.out or args.runs[0]) as place:
        place.keep()
        pictures = plot_all(shown, place.folder)
    args.answer = {"runs": [as_dict(run) for run in runs], "pictures": pictures, "warning": shown.warning or None}
    show_table(shown)
    for picture in pictures:
        print(picture)
    return 0


def add_scenario(commands: Any) -> None:
    """``spyker scenario``."""
    parser = commands.add_parser("scenario", help="print the default scenario with a comment for every key")
    parser.add_argument(
        "--pings", type=Path, metavar="FILE", help="take regions and latencies from a table of pings: CSV or JSON"
    )
    examples(
        parser,
        "spyker scenario > my-world.toml  # then: spyker run my-world.toml",
        "spyker scenario --pings pings.csv > my-world.toml  # with measured latencies",
    )
    parser.set_defaults(command=command_scenario)


def command_scenario(args: argparse.Namespace) -> int:
    """Print the default scenario, or one with measured latencies."""
    measured = None if args.pings is None else {"world": read_pings(args.pings)}
    print(dump(resolve(load(measured)), comments=True), end="")
    return 0
