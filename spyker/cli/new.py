"""``spyker new``: the beginning of a task or an algorithm of one's own."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from spyker.api.new import KINDS, name_in_scenarios, write_new
from spyker.cli.help import examples


def add_new(commands: Any) -> None:
    """``spyker new``."""
    parser = commands.add_parser(
        "new",
        help="begin a task or an algorithm of your own: a file that runs, and its test",
        description="Write NAME.py, which runs as it stands and is yours to change, and test_NAME.py, which passes.",
    )
    parser.add_argument("kind", choices=KINDS, help="what it is")
    parser.add_argument("name", metavar="MODULE", help="how its module is called, such as my_task")
    parser.add_argument("--out", type=Path, default=Path(), metavar="DIR", help="where the files go; default: here")
    parser.add_argument("--overwrite", action="store_true", help="replace files that exist already")
    examples(
        parser,
        "spyker new task my_task",
        "spyker new algorithm my_algorithm --out research",
    )
    parser.set_defaults(command=command_new)


def command_new(args: argparse.Namespace) -> int:
    """Write both files and say how to run them."""
    module, test = write_new(args.kind, args.name, args.out, overwrite=args.overwrite)
    go = "" if args.out == Path() else f"cd {args.out} && "
    print(f"{module}\n{test}")
    print(f"to run it:  {go}spyker run --{args.kind} {name_in_scenarios(args.kind, module)} --duration 20")
    print(f"to test it: {go}python -m pytest {test.name}")
    return 0
