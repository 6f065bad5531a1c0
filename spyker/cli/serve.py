"""``spyker serve`` and ``spyker join``: one process of a deployment each."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from typing import Any

from spyker.api.data import data_from, prepare_data
from spyker.api.scenario import read_scenario
from spyker.cli.codes import INTERRUPTED
from spyker.cli.options import add_data_dir, add_set, read_settings
from spyker.config.sections import ScenarioError

EXTRA = "Install what deployments need: pip install 'spyker-fl[deploy]'"


def add_serve(commands: Any) -> None:
    """``spyker serve``."""
    parser = commands.add_parser("serve", help="be one server of a deployment")
    parser.add_argument("config", type=Path, metavar="CONFIG", help="a TOML file: a scenario and a section [deploy]")
    parser.add_argument("--resume", action="store_true", help="go on from the last checkpoint, if there is one")
    parser.add_argument(
        "--accept-rollback",
        action="store_true",
        help="go on from an older checkpoint if the last is damaged, though other servers may refuse this one then",
    )
    parser.add_argument("--insecure", action="store_true", help="plaintext, on loopback addresses only")
    add_data_dir(parser)
    parser.set_defaults(command=command_serve)


def command_serve(args: argparse.Namespace) -> int:
    """Be a server until SIGTERM, or until the configured duration has passed."""
    try:
        from spyker.deploy.config import load_config
        from spyker.deploy.serve import serve
    except ModuleNotFoundError as error:
        raise ScenarioError("serve", f"needs {error.name}, which is not installed", EXTRA) from None
    with data_from(args.data_dir):
        config = load_config(args.config)
        prepare_data([config.scenario])
        serve(config, resume=args.resume, insecure=args.insecure, accept_rollback=args.accept_rollback)
    return 0


def add_join(commands: Any) -> None:
    """``spyker join``."""
    parser = commands.add_parser("join", help="be one client of a deployment, or some")
    parser.add_argument("scenario", nargs="?", type=Path, metavar="SCENARIO", help="the scenario that the servers have")
    parser.add_argument(
        "--server", action="append", required=True, metavar="HOST:PORT", dest="servers",
        help="where a server takes clients; may be repeated, the nearest one is chosen",
    )  # fmt: skip
    parser.add_argument("--clients", required=True, metavar="K", help="which client this is, such as 7; or some: 0-24")
    parser.add_argument("--certs", type=Path, metavar="DIR", help="folder with client-K/ca.pem and client-K/credential")
    parser.add_argument("--ca", type=Path, metavar="FILE", help="the deployment's certificate authority")
    parser.add_argument("--credential", type=Path, metavar="FILE", help="the client's credential")
    parser.add_argument("--insecure", action="store_true", help="plaintext, on loopback addresses only")
    parser.add_argument(
        "--paced", action="store_true", help="let trainings take at least as long as training.delay-ms says"
    )
    parser.add_argument(
        "--patience", type=float, default=15.0, metavar="S", help="wait so long for a server before turning to another"
    )
    parser.add_argument(
        "--return-after", type=float, default=30.0, metavar="S", help="look so often whether a nearer server is back"
    )
    parser.add_argument("--give-up", type=float, metavar="S", help="end after so long without a server; default: never")
    parser.add_argument("--keepalive", type=float, default=10.0, metavar="S", help="seconds between pings")
    parser.add_argument("--stall", type=float, default=300.0, metavar="S", help="end a connection that takes nothing")
    add_data_dir(parser)
    add_set(parser)
    parser.set_defaults(command=command_join)


def command_join(args: argparse.Namespace) -> int:
    """Be some clients until the servers have finished, or somebody ends this process."""
    try:
        from spyker.deploy.client_link import Behaviour
        from spyker.deploy.client_process import join
    except ModuleNotFoundError as error:
        raise ScenarioError("join", f"needs {error.name}, which is not installed", EXTRA) from None
    behaviour = Behaviour(args.keepalive, args.stall, args.patience, args.return_after, args.give_up)
    with data_from(args.data_dir):
        scenario = read_scenario(args.scenario, settings=read_settings(args.settings))
        clients = read_clients(args.clients, scenario.client_count)
        prepare_data([scenario])
        finished = asyncio.run(
            join(
                scenario,
                clients,
                tuple(args.servers),
                behaviour,
                certs=args.certs,
                ca=args.ca,
                credential=args.credential,
                insecure=args.insecure,
                paced=args.paced,
            )
        )
    return 0 if finished else INTERRUPTED


def read_clients(text: str, count: int) -> range:
    """``7`` or ``0-24``."""
    first, dash, last = text.partition("-")
    if not first.isdigit() or (dash and not last.isdigit()):
        raise ScenarioError("--clients", f"is {text!r}", "Write a number, such as 7, or a range, such as 0-24")
    clients = range(int(first), int(last if dash else first) + 1)
    if not clients or clients[-1] >= count:
        raise ScenarioError("--clients", f"is {text}", f"The scenario has clients 0 to {count - 1}")
    return clients
