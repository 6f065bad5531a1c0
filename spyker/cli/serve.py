"""``spyker serve`` and ``spyker join``: a server process and a client process of a deployment."""

from __future__ import annotations

import argparse
import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

from spyker.api.datasets import data_from, prepare_data
from spyker.api.read_scenario import read_scenario
from spyker.cli.codes import INTERRUPTED
from spyker.cli.dash import Dashboard, add_dashboard
from spyker.cli.help import examples
from spyker.cli.numbers import above_zero, zero_or_more
from spyker.cli.options import add_data_dir, add_flower, add_set, task_arguments
from spyker.config.scenario import Scenario
from spyker.errors import UsageError
from spyker.tasks.initial_model import InitialModelFile

MOST_CLIENTS = 1_000_000
EXTRA = "Install it: pip install 'spyker-fl[net]'"


def add_serve(commands: Any) -> None:
    """``spyker serve``."""
    parser = commands.add_parser("serve", help="run a server of a deployment")
    parser.add_argument("config", type=Path, metavar="CONFIG", help="TOML file with a scenario and a section [deploy]")
    parser.add_argument("--resume", action="store_true", help="continue from the last checkpoint, if there is one")
    parser.add_argument(
        "--join",
        action="store_true",
        help="join running servers after spyker members add or replace; the model comes from another server",
    )
    parser.add_argument(
        "--initial-model",
        type=Path,
        metavar="FILE",
        help="initial model, the same on all servers; a safetensors file",
    )
    parser.add_argument("--insecure", action="store_true", help="no TLS; loopback addresses only")
    parser.add_argument(
        "--check",
        action="store_true",
        help="verify configuration, certificates, addresses and folders, and end: with exit code 0 if this server "
        "could start here, otherwise with 2 and what is wrong; changes nothing",
    )
    add_dashboard(parser)
    add_data_dir(parser)
    examples(
        parser,
        "spyker serve paris.toml",
        "spyker serve paris.toml --check  # could this server start here?",
        "spyker serve paris.toml --resume  # from the last checkpoint",
        "spyker serve paris.toml --join  # after spyker members add or replace",
    )
    parser.set_defaults(command=command_serve)


def command_serve(args: argparse.Namespace) -> int:
    """Run a server until SIGTERM or until the configured duration has passed."""
    try:
        from spyker.net.server_config import load_config
        from spyker.net.server_process import serve
        from spyker.net.start_check import check_start
    except ModuleNotFoundError as error:
        raise UsageError("serve", f"needs {error.name}, which is not installed", EXTRA) from None
    config = load_config(args.config)
    if args.check:
        check_start(config, insecure=args.insecure)
        print(f"server {config.deploy.server} can start here")
        return 0
    with data_from(args.data_dir), Dashboard(args.dashboard) as page:
        given = None if args.initial_model is None else InitialModelFile(args.initial_model)
        prepare_data([config.scenario])
        page.show(config.path(config.deploy.record))
        serve(config, resume=args.resume, insecure=args.insecure, join=args.join, initial_model=given)
    return 0


def add_join(commands: Any) -> None:
    """``spyker join``."""
    parser = commands.add_parser("join", help="run one or more clients of a deployment")
    parser.add_argument("scenario", nargs="?", type=Path, metavar="SCENARIO", help="the scenario of the servers")
    parser.add_argument(
        "--server", action="append", required=True, metavar="HOST:PORT", dest="servers",
        help="client address of a server; may be repeated: the nearest server is used",
    )  # fmt: skip
    parser.add_argument(
        "--clients", required=True, metavar="K", help="number of the client, such as 7, or a range: 0-24"
    )
    parser.add_argument("--certs", type=Path, metavar="DIR", help="folder with client-K/ca.pem and client-K/credential")
    parser.add_argument("--ca", type=Path, metavar="FILE", help="the deployment's certificate authority")
    parser.add_argument("--credential", type=Path, metavar="FILE", help="the client's credential")
    parser.add_argument("--insecure", action="store_true", help="no TLS; loopback addresses only")
    parser.add_argument("--paced", action="store_true", help="delay trainings to at least training.delay-ms")
    parser.add_argument(
        "--patience",
        type=zero_or_more,
        default=15.0,
        metavar="S",
        help="timeout in seconds before the client tries another server; default: 15",
    )
    parser.add_argument(
        "--return-after",
        type=zero_or_more,
        default=30.0,
        metavar="S",
        help="seconds between checks for a nearer server; default: 30",
    )
    parser.add_argument(
        "--give-up",
        type=zero_or_more,
        metavar="S",
        help="exit after this number of seconds without a server; default: never",
    )
    parser.add_argument(
        "--transport",
        choices=("auto", "grpc", "websocket"),
        default="auto",
        help="auto (the default): gRPC, or WebSocket where the network breaks HTTP/2",
    )
    parser.add_argument(
        "--proxy",
        metavar="URL",
        help="HTTP proxy, such as http://user:password@proxy.example.org:3128; default: the variable https_proxy",
    )
    parser.add_argument("--state", type=Path, metavar="DIR", help="folder in which to remember which transport works")
    parser.add_argument("--keepalive", type=above_zero, default=10.0, metavar="S", help="seconds between pings")
    parser.add_argument(
        "--stall",
        type=above_zero,
        default=300.0,
        metavar="S",
        help="timeout in seconds of a stalled connection; default: 300",
    )
    add_flower(parser)
    add_data_dir(parser)
    add_set(parser)
    examples(
        parser,
        "spyker join scenario.toml --server hk.example.org:7000 --server paris.example.org:7000 --clients 7 "
        "--certs certs",
        "spyker join scenario.toml --server 127.0.0.1:7000 --clients 0-24 --insecure",
    )
    parser.set_defaults(command=command_join)


def command_join(args: argparse.Namespace) -> int:
    """Run clients until the servers have finished or a signal arrives."""
    try:
        from spyker.net.client_link import ClientOptions
        from spyker.net.client_process import join
        from spyker.net.transports import NetworkOptions, check_proxy
    except ModuleNotFoundError as error:
        raise UsageError("join", f"needs {error.name}, which is not installed", EXTRA) from None
    behaviour = ClientOptions(args.stall, args.patience, args.return_after, args.give_up)
    proxy = None if args.proxy is None else check_proxy(args.proxy)
    network = NetworkOptions(args.keepalive, args.transport, proxy, args.state)
    with data_from(args.data_dir):
        scenario = read_scenario(args.scenario, **task_arguments(args))
        clients = read_clients(args.clients)
        scenario = with_more_clients(scenario, clients[-1] + 1)
        prepare_data([scenario])
        finished = asyncio.run(
            join(
                scenario,
                clients,
                tuple(args.servers),
                behaviour,
                network,
                certs=args.certs,
                ca=args.ca,
                credential=args.credential,
                insecure=args.insecure,
                paced=args.paced,
            )
        )
    return 0 if finished else INTERRUPTED


def with_more_clients(scenario: Scenario, count: int) -> Scenario:
    """Return the scenario with at least ``count`` clients, for clients beyond the initial ones."""
    more = count - scenario.client_count
    if more <= 0:
        return scenario
    assert scenario.world.clients is not None  # a scenario that was read has them
    *others, last = scenario.world.clients
    world, training = replace(scenario.world, clients=(*others, last + more)), scenario.training
    if isinstance(training.delay_ms, tuple):
        training = replace(training, delay_ms=(*training.delay_ms, *training.delay_ms[-1:] * more))
    return replace(scenario, world=world, training=training)


def read_clients(text: str) -> range:
    """Parse ``7`` or ``0-24``."""
    first, dash, last = text.partition("-")
    if not first.isdigit() or (dash and not last.isdigit()):
        raise UsageError("--clients", f"{text!r} is not allowed", "Write a number, such as 7, or a range, such as 0-24")
    clients = range(int(first), int(last if dash else first) + 1)
    if not clients or clients[-1] >= MOST_CLIENTS:
        raise UsageError(
            "--clients", f"{text} is not allowed", f"Write an ascending range within 0 to {MOST_CLIENTS - 1:,}"
        )
    return clients
