"""``spyker export``: the model of a run or of a deployment, for use without Spyker."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from spyker.cli.help import examples


def add_export(commands: Any) -> None:
    """``spyker export``."""
    parser = commands.add_parser(
        "export",
        help="write the model of a run or a deployment as safetensors and as a PyTorch state dict",
        description="Write the model that a run left, or the one in the latest checkpoints of a deployment's servers, "
        "which may be running: the average of all servers'.",
    )
    parser.add_argument(
        "folders", nargs="+", type=Path, metavar="FOLDER", help="the record of a run, or state folders of servers"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("model"), metavar="NAME", help="writes NAME.safetensors and NAME.pt: model"
    )
    parser.add_argument("--server", type=int, metavar="I", help="the model of server I alone")
    parser.add_argument("--overwrite", action="store_true", help="replace files that exist already")
    examples(
        parser,
        "spyker export runs/first --out digits  # digits.safetensors and digits.pt",
        "spyker export runs/first --server 2",
        "spyker export server-0/state server-1/state --out deployed  # while they run",
    )
    parser.set_defaults(command=command_export)


def command_export(args: argparse.Namespace) -> int:
    """Read, write, and say what was written."""
    from spyker.api.export import export, find_model  # only now: the other commands need none of it

    model, origin = find_model(args.folders, args.server)
    for line in [*origin, *export(model, args.out, overwrite=args.overwrite)]:
        print(line)
    return 0
