"""``spyker examples``: what comes with Spyker to begin from."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from spyker.api.examples import all_examples, copy_examples
from spyker.cli.help import examples
from spyker.cli.output import add_json
from spyker.errors import UsageError
from spyker.plots.table import print_table


def add_examples(commands: Any) -> None:
    """``spyker examples``."""
    parser = commands.add_parser("examples", help="list the examples that come with Spyker, or copy some of them")
    parser.add_argument("action", nargs="?", choices=("list", "copy"), default="list", help="default: list")
    parser.add_argument("names", nargs="*", metavar="EXAMPLE", help="which to copy; default: all")
    parser.add_argument(
        "--out", type=Path, default=Path("examples"), metavar="DIR", help="where copies go; default: examples"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace files that exist already")
    add_json(parser)
    examples(
        parser,
        "spyker examples",
        "spyker examples copy demo.toml --out .  # then: spyker compare demo.toml",
        "spyker examples copy",
    )
    parser.set_defaults(command=command_examples)


def command_examples(args: argparse.Namespace) -> int:
    """List or copy."""
    if args.action == "copy":
        args.answer = copy_examples(args.names, args.out, overwrite=args.overwrite)
        for path in args.answer:
            print(path)
        return 0
    if args.names:
        raise UsageError("EXAMPLE", f"is {args.names[0]!r}", "To copy it: spyker examples copy")
    found = all_examples()
    args.answer = [{"example": each.name, "about": each.about, "path": each.path} for each in found]
    print_table(["example", "what it is"], [[each.name, each.about] for each in found], words=2)
    print("to copy them: spyker examples copy")
    return 0
