"""``spyker merge``: merge the run records of a deployment's servers."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from spyker.cli.help import examples
from spyker.records import RunRecord, first_fact
from spyker.records.merge import merge


def add_merge(commands: Any) -> None:
    """``spyker merge``."""
    parser = commands.add_parser("merge", help="merge the run records of a deployment's servers")
    parser.add_argument(
        "records",
        nargs="+",
        type=Path,
        metavar="SERVER_RECORD",
        help="record folder of a server (deploy.record); in the folder of spyker up --keep: server-I/record",
    )
    parser.add_argument(
        "--out",
        type=Path,
        required=True,
        metavar="DIR",
        help="folder of the merged record; an existing one is continued",
    )
    examples(parser, "spyker merge server-0/record server-1/record --out runs/deployed  # repeat to add new facts")
    parser.set_defaults(command=command_merge)


def command_merge(args: argparse.Namespace) -> int:
    """Merge the records, starting where the last merge into the folder ended."""
    begun = [folder for folder in args.records if not folder.is_dir() or first_fact(folder) is not None]
    for folder in args.records:
        if begun and folder not in begun:
            print(f"{folder} is left out: its server has not started yet")
    merge(begun or args.records, args.out)
    there, wanted = len(begun), len(RunRecord(args.out).start.servers)
    if there < wanted:
        print(f"only {there} of {wanted} servers: the facts of the others are missing")
    print(f"record: {args.out}/  ·  plot: spyker plot {args.out}")
    return 0
