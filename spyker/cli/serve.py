"""``spyker serve``: a server process of a deployment."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from spyker.api.datasets import data_from, prepare_data
from spyker.cli.dash import Dashboard, add_dashboard
from spyker.cli.help import examples
from spyker.cli.options import add_data_dir
from spyker.tasks.initial_model import InitialModelFile


def add_serve(commands: Any) -> None:
    """``spyker serve``."""
    parser = commands.add_parser("serve", help="run a server of a deployment")
    parser.add_argument(
        "config",
        type=Path,
        metavar="FOLDER",
        help="folder of a server, written by spyker federation create; or a TOML file with a scenario and [deploy]",
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="continue from the last checkpoint, if there is one; a server of a FOLDER always does",
    )
    parser.add_argument(
        "--join",
        action="store_true",
        help="join running servers after spyker members add or replace; the model comes from another server",
    )
    parser.add_argument(
        "--initial-model", type=Path, metavar="FILE", help="initial model, the same on all servers; a safetensors file"
    )
    parser.add_argument("--insecure", action="store_true", help="no TLS; loopback addresses only")
    parser.add_argument(
        "--check",
        action="store_true",
        help="check configuration, certificates, addresses and folders, then exit: with code 0 if this server "
        "could start here, otherwise with code 2 and the problem; changes nothing",
    )
    add_dashboard(parser)
    add_data_dir(parser)
    examples(
        parser,
        "spyker serve server-paris",
        "spyker serve server-paris --check  # could this server start here?",
        "spyker serve server-paris --join  # after spyker members add or replace",
        "spyker serve paris.toml --resume  # from the last checkpoint",
    )
    parser.set_defaults(command=command_serve)


def command_serve(args: argparse.Namespace) -> int:
    """Run a server until SIGTERM or until the configured duration has passed."""
    from spyker.net.identity import has_state
    from spyker.net.server_config import load_config
    from spyker.net.server_process import serve
    from spyker.net.start_check import check_start

    config = load_config(args.config)
    if args.check:
        check_start(config, insecure=args.insecure)
        print(f"server {config.deploy.server} can start here")
        return 0
    with data_from(args.data_dir), Dashboard(args.dashboard) as page:
        given = InitialModelFile.read(args.initial_model)
        if config.needs_task:
            prepare_data([config.scenario])
        page.show(config.path(config.deploy.record))
        resume = args.resume or (args.config.is_dir() and has_state(config.path(config.deploy.state)))
        serve(config, resume=resume, insecure=args.insecure, join=args.join, initial_model=given)
    return 0
