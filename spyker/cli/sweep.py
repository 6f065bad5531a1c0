"""``spyker sweep``: runs of a scenario with several values of some keys."""

from __future__ import annotations

import argparse
from typing import Any

import spyker
from spyker.api.sweep import PICTURE
from spyker.cli.codes import INTERRUPTED
from spyker.cli.help import examples
from spyker.cli.options import add_scenario_options, run_arguments, scenario_arguments
from spyker.cli.output import add_json
from spyker.cli.run import show_notes
from spyker.config.scenario import parse_value
from spyker.errors import Interrupted, UsageError
from spyker.plots.table import print_table
from spyker.sweeps.sweep_points import cells, lines


def add_sweep(commands: Any) -> None:
    """``spyker sweep``."""
    parser = commands.add_parser(
        "sweep",
        help="run a scenario with several values of some keys",
        description="Run all combinations of values, several at a time. Finished runs are not repeated: give the same "
        "--out with --resume to continue after an interruption or to add values.",
    )
    add_scenario_options(parser, algorithm=True, engine=False)
    parser.add_argument(
        "--vary", action="append", default=[], metavar="SECTION.KEY=A,B,…", help="values of a key; may be repeated"
    )
    parser.add_argument("--seeds", type=int, default=1, metavar="K", help="number of seeds per combination; default: 1")
    add_many_options(parser)
    add_json(parser)
    examples(
        parser,
        "spyker sweep --vary algorithm=stride,fedasync --vary training.rate=0.05,0.2,0.5 --seeds 3 --out runs/rates",
        "spyker sweep --vary training.rate=0.05,0.1,0.2,0.5 --out runs/rates --resume  # more values, later",
        "spyker sweep my-world.toml --vary 'world.clients=[5,5,5,5],[20,20,20,20]' --jobs 2",
    )
    parser.set_defaults(command=command_sweep)


def add_many_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--jobs`` and ``--resume``."""
    parser.add_argument("--jobs", type=int, metavar="N", help="number of concurrent runs; default: one per core")
    parser.add_argument("--resume", action="store_true", help="keep the finished runs in --out")


def command_sweep(args: argparse.Namespace) -> int:
    """Run all combinations and print a table of the results."""
    vary: dict[str, list[object]] = {}
    for text in args.vary:
        key, values = split_values(text)
        if key in vary:
            raise UsageError("--vary", f"{key} occurs twice", "Give all values of a key in one option")
        vary[key] = values
    try:
        done = spyker.sweep(args.scenario, vary=vary, **scenario_arguments(args), **run_arguments(args))
    except Interrupted as stop:
        print(stop)
        return INTERRUPTED
    heads, body = lines(done.rows)
    picture = done.folder / PICTURE
    args.answer = {
        "runs": [dict(zip(heads, line, strict=True)) for line in body],
        "folder": done.folder,
        "picture": picture if picture.exists() else None,
    }
    print_table(*cells(done.rows), words=len(vary))
    show_notes(done.summaries, args)
    print(f"all numbers: {done.folder / 'sweep.csv'}  ·  records: {done.folder / 'runs'}/")
    if picture.exists():
        print(f"plot: {picture}  ·  curves: spyker plot {done.folder}")
    return 0


def split_values(text: str) -> tuple[str, list[object]]:
    """Split ``key=a,b,c`` into a key and its values. Commas inside brackets and quotes do not separate."""
    key, equals, rest = text.partition("=")
    if not equals or not key.strip() or not rest.strip():
        raise UsageError(f"--vary {text}", "has no values", "Write --vary section.key=a,b,c")
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
        raise UsageError(f"--vary {text}", "has an empty value", "Write --vary section.key=a,b,c")
    return key.strip(), values
