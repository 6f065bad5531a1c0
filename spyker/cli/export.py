"""``spyker export``: the current model of a deployment, for use without Spyker."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from spyker.cli.options import require_deploy


def add_export(commands: Any) -> None:
    """``spyker export``."""
    parser = commands.add_parser(
        "export",
        help="write the model of a deployment as safetensors and as a PyTorch state dict",
        description="Write the model in the latest checkpoints of some servers, which may be running: their average.",
    )
    parser.add_argument("folders", nargs="+", type=Path, metavar="STATE_FOLDER", help="the state folder of a server")
    parser.add_argument(
        "--out", type=Path, default=Path("model"), metavar="NAME", help="writes NAME.safetensors and NAME.pt: model"
    )
    parser.add_argument("--server", type=int, metavar="I", help="the model of server I alone")
    parser.add_argument("--overwrite", action="store_true", help="replace files that exist already")
    parser.set_defaults(command=command_export)


def command_export(args: argparse.Namespace) -> int:
    """Read, average, write, and say what was written."""
    require_deploy()
    from spyker.deploy.export import export, gather  # only now: an extra

    models = gather(args.folders, args.server)
    paths = export(models, args.out, overwrite=args.overwrite)
    for model in models:
        print(f"server {model.server}: version {model.version}, age {model.age:g}")
    for path in paths:
        print(path)
    return 0
