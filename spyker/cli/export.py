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
        description="Write the final model of a run, or the model in the latest checkpoints of a deployment's servers, "
        "which may be running: the average of all servers. The state folder of a client with personal "
        "parameters yields its complete model.",
    )
    parser.add_argument(
        "folders", nargs="+", type=Path, metavar="FOLDER", help="a run record, state folders of servers, or of a client"
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("model"),
        metavar="NAME",
        help="write NAME.safetensors and, if PyTorch is installed, NAME.pt; default: model",
    )
    parser.add_argument("--server", type=int, metavar="I", help="only the model of server I")
    parser.add_argument("--overwrite", action="store_true", help="replace existing files")
    examples(
        parser,
        "spyker export runs/first --out digits  # digits.safetensors and digits.pt",
        "spyker export runs/first --server 2",
        "spyker export server-0/state server-1/state --out deployed  # while they run",
        "spyker export client-charite --out charite  # shared and personal parameters",
    )
    parser.set_defaults(command=command_export)


def command_export(args: argparse.Namespace) -> int:
    """Read the model, write it, and print what was written."""
    from spyker.api.export import export, find_model  # slow to import

    model, origin = find_model(args.folders, args.server)
    for line in [*origin, *export(model, args.out, overwrite=args.overwrite)]:
        print(line)
    return 0
