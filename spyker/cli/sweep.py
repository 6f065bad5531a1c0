"""``spyker sweep``: the same scenario with many values of some keys."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from spyker.cli.data import prepare_data
from spyker.cli.options import add_scenario_options, default_out, read_scenario, use_data_dir
from spyker.cli.run import INTERRUPTED, short, stop_on_signals
from spyker.config.sections import ScenarioError, show
from spyker.experiments.runner import held, run_watched, with_seeds
from spyker.experiments.sweep import Point, Row, all_measures, as_csv, combinations, row, split_values
from spyker.learn.memory import check_memory
from spyker.learn.start import available_cores
from spyker.records import is_record, write_atomically


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
    use_data_dir(args)
    if not args.vary:
        raise ScenarioError("--vary", "is missing", "Write --vary section.key=a,b,c")
    check_counts(args)
    varied = [split_values(text) for text in args.vary]
    points = [Point(values, read_scenario(args, values)) for values in combinations(varied)]
    out: Path = args.out or default_out(f"sweep-{short(points[0].scenario.task.name)}")
    check_folder(out, resume=args.resume)
    scenarios = [s for point in points for s in with_seeds(point.scenario, args.seeds)]
    check_memory(sorted(scenarios, key=lambda s: s.client_count)[-(args.jobs or available_cores()) :])
    for scenario in {s.task.name: s for s in scenarios}.values():
        prepare_data(scenario)
    with stop_on_signals() as stop, held(out / "runs"):
        runs = run_watched("sweep", scenarios, out / "runs", args.jobs, stop)
    if stop.requested:
        print(f"stopped; to go on: the same command with --out {out} --resume")
        return INTERRUPTED
    rows = [row(point, runs[i * args.seeds : (i + 1) * args.seeds]) for i, point in enumerate(points)]
    write_atomically(out / "sweep.csv", as_csv(rows))
    print_rows(rows)
    print(f"all numbers: {out / 'sweep.csv'}  ·  records: {out / 'runs'}/")
    return 0


def check_counts(args: argparse.Namespace) -> None:
    """Refuse numbers that make no sense."""
    for option in ("seeds", "jobs"):
        value = getattr(args, option)
        if value is not None and value < 1:
            raise ScenarioError(f"--{option}", f"is {value}", "Give at least 1")


def check_folder(out: Path, *, resume: bool) -> None:
    """Go on in a folder that has runs only when asked to."""
    if out.exists() and not out.is_dir():
        raise ScenarioError("--out", f"{out} is a file", "Choose another")
    if out.exists() and any(out.iterdir()):
        if not resume:
            raise ScenarioError("--out", f"{out} exists already", "Add --resume to go on there, or choose another")
        runs = out / "runs"
        if not runs.is_dir() or not all(is_record(child) for child in runs.iterdir() if child.name[0] != "."):
            raise ScenarioError("--out", f"{out} holds no runs to go on with", "Choose another")


def print_rows(rows: Sequence[Row]) -> None:
    """The table; the CSV file has more columns."""
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", padding=(0, 1, 0, 0))
    for key in rows[0].values:
        table.add_column(key.rpartition(".")[2], overflow="fold")
    shown = [m for m in all_measures(rows) if not m.startswith("updates") and "averaged" not in m]
    for measure in shown:
        table.add_column(measure, justify="right")
    for r in rows:
        cells = [value if isinstance(value, str) else show(value) for value in r.values.values()]
        missing = "" if r.measures else "diverged"
        table.add_row(*cells, *(r.measures[m].text() if m in r.measures else missing for m in shown))
    Console().print(table)
