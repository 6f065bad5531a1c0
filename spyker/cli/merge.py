"""``spyker merge``: the records of a deployment's servers as one."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from spyker.cli.help import examples
from spyker.records import RunRecord
from spyker.records.merge import merge


def add_merge(commands: Any) -> None:
    """``spyker merge``."""
    parser = commands.add_parser("merge", help="make one record of the records of a deployment's servers")
    parser.add_argument(
        "records",
        nargs="+",
        type=Path,
        metavar="SERVER_RECORD",
        help="the folder of a server's record, which deploy.record names; below spyker up --keep: server-I/record",
    )
    parser.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="where the merged record goes, or goes on"
    )
    examples(parser, "spyker merge server-0/record server-1/record --out runs/deployed  # again, later: goes on")
    parser.set_defaults(command=command_merge)


def command_merge(args: argparse.Namespace) -> int:
    """Merge what the servers have written, from where the last merge into this folder ended."""
    merge(args.records, args.out)
    there, wanted = len(args.records), len(RunRecord(args.out).start.servers)
    if there < wanted:
        print(f"only {there} of {wanted} servers: what the others did is missing")
    print(f"record: {args.out}/  ·  to draw it: spyker plot {args.out}")
    return 0
