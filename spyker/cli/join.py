"""``spyker join``: a client process of a deployment."""

from __future__ import annotations

import argparse
import asyncio
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spyker.api.datasets import data_from, prepare_data
from spyker.api.read_scenario import read_scenario
from spyker.cli.codes import INTERRUPTED
from spyker.cli.help import examples
from spyker.cli.numbers import above_zero, zero_or_more
from spyker.cli.options import add_data_dir, add_flower, add_set, split_pair, task_arguments
from spyker.config.scenario import Scenario
from spyker.errors import UsageError
from spyker.extras import SERVER, require

if TYPE_CHECKING:
    from spyker.net.client_context import ClientOptions
    from spyker.net.client_folder import ClientFolder
    from spyker.net.transports import NetworkOptions

MOST_CLIENTS = 1_000_000


def add_join(commands: Any) -> None:
    """``spyker join``."""
    parser = commands.add_parser(
        "join",
        help="run a client of a federation",
        description="Run a client from its folder. Several clients in one process, for trials, are run from a scenario "
        "file with --server, --clients and --certs or --insecure.",
    )
    parser.add_argument(
        "place",
        type=Path,
        metavar="FOLDER",
        help="folder of a client, written by spyker federation create; or the scenario file of the servers",
    )
    parser.add_argument("--data", metavar="PATH", help="the client's data: the task's local option data")
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="options",
        help="local option of the task, which never leaves this machine; may be repeated",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="check certificate, servers, code and data, train once, then exit: with code 0 if this client could take "
        "part, otherwise with code 2 and the problem; changes nothing",
    )
    parser.add_argument(
        "--allow-other-code",
        action="store_true",
        help="use the task's code on this machine even if it is not that of the federation",
    )
    parser.add_argument(
        "--server", action="append", default=[], metavar="HOST:PORT", dest="servers",
        help="scenario file: client address of a server; may be repeated: the nearest server is used",
    )  # fmt: skip
    parser.add_argument(
        "--clients", metavar="K", help="scenario file: number of the client, such as 7, or a range: 0-24"
    )
    parser.add_argument(
        "--certs", type=Path, metavar="DIR", help="scenario file: folder with cert.pem, key.pem and ca.pem in client-K"
    )
    parser.add_argument("--insecure", action="store_true", help="no TLS; loopback addresses only")
    parser.add_argument("--paced", action="store_true", help="delay trainings to at least training.delay-ms")
    parser.add_argument(
        "--patience",
        type=zero_or_more,
        default=3.0,
        metavar="S",
        help="timeout in seconds before the client tries another server; default: 3",
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
        help="auto (the default): gRPC, or WebSocket where the network breaks HTTP/2",
    )
    parser.add_argument(
        "--proxy",
        metavar="URL",
        help="HTTP proxy, such as http://user:password@proxy.example.org:3128; default: the variable https_proxy",
    )
    parser.add_argument("--keepalive", type=above_zero, default=10.0, metavar="S", help="seconds between pings")
    parser.add_argument(
        "--state",
        type=Path,
        metavar="DIR",
        help="folder for the clients' states and the transport that works, which survive a restart, and for "
        "status.json; default: state in the client's FOLDER, and none for a scenario file",
    )
    parser.add_argument("--discard-state", action="store_true", help="begin without the saved states, and rename them")
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
        "spyker join client-charite --data /data/records.csv",
        "spyker join client-charite --data /data/records.csv --check  # could this client take part?",
        "spyker join scenario.toml --server 127.0.0.1:7000 --clients 0-24 --insecure",
    )
    parser.set_defaults(command=command_join)


def command_join(args: argparse.Namespace) -> int:
    """Run clients until the servers have finished or a signal arrives."""
    require("join", *SERVER, extra="client")  # not PyTorch, which tasks of NumPy arrays do without
    from spyker.net.client_folder import CLIENT_FILE

    if args.place.is_dir() or args.place.name == CLIENT_FILE:
        return join_from_folder(args)
    return join_from_scenario(args)


def join_from_scenario(args: argparse.Namespace) -> int:
    """Run several clients of a scenario file."""
    from spyker.net.client_process import join

    options = read_options(args)
    if not args.place.exists():
        raise UsageError(
            "FOLDER", f"{args.place} not found", "Name a client's folder that spyker federation create wrote"
        )
    if args.check:
        raise UsageError("--check", "needs the folder of a client", "Name one instead of a scenario file")
    for option, value in (("--server", args.servers), ("--clients", args.clients)):
        if not value:
            raise UsageError(option, "is missing", "Give it, or name the folder of a client instead of a scenario file")
    if args.insecure == (args.certs is not None):
        raise UsageError("--certs", "is missing", "Give --certs or --insecure, not both; or name a client's folder")
    with data_from(args.data_dir):
        clients = read_clients(args.clients)
        scenario = with_more_clients(read_scenario(args.place, **task_arguments(args)), clients[-1] + 1)
        prepare_data([scenario])
        running = join(
            scenario,
            clients,
            args.servers,
            behaviour(args),
            network_options(args),
            identities=None if args.certs is None else {k: args.certs / f"client-{k}" for k in clients},
            options=options,
            paced=args.paced,
            state=args.state,
            discard=args.discard_state,
        )
        return 0 if asyncio.run(running) else INTERRUPTED


def join_from_folder(args: argparse.Namespace) -> int:
    """Run the client of a folder, or check whether it could run."""
    from spyker.net.client_folder import load_client
    from spyker.net.client_process import join
    from spyker.net.client_state import STATE_FOLDER
    from spyker.net.member_list import members_of

    options = read_options(args)
    for option in ("servers", "clients", "certs", "insecure", "flower", "settings"):
        if getattr(args, option):
            name = {"servers": "--server", "settings": "--set"}.get(option, f"--{option}")
            raise UsageError(
                name, "is not allowed with the folder of a client", "Leave it out, or name a scenario file"
            )
    folder = load_client(args.place)
    folder.check_code(allow=args.allow_other_code)
    client = folder.client
    network = network_options(args, client.transport, client.proxy)
    scenario = with_more_clients(folder.scenario, client.number + 1)
    folder = replace(folder, scenario=scenario, options=dict(folder.options) | options)
    state = args.state or folder.path / STATE_FOLDER
    with data_from(args.data_dir):
        if args.check:
            check(folder, replace(network, state=None))
            return 0
        prepare_data([scenario])
        running = join(
            scenario,
            [client.number],
            client.servers,
            behaviour(args),
            replace(network, state=state),
            identities={client.number: folder.path},
            numbers=dict(zip(client.servers, client.numbers, strict=False)),
            followed=members_of(folder),
            options=folder.options,
            names={client.number: client.name},
            paced=args.paced,
            state=state,
            discard=args.discard_state,
        )
        return 0 if asyncio.run(running) else INTERRUPTED


def check(folder: ClientFolder, network: NetworkOptions) -> None:
    """Connect to the servers and train once, and print what was found."""
    from spyker.net.join_check import check_join, check_servers

    client = folder.client
    for address, seconds in check_servers(folder, network).items():
        print(f"{address} accepts client {client.number} ({client.name}), {1000 * seconds:.0f} ms")
    prepare_data([folder.scenario])
    report = check_join(folder)
    peak = "" if report.peak_mb is None else f"; peak memory {report.peak_mb:,.0f} MB"
    print(
        f"{report.examples:,} examples, loaded in {report.load_seconds:.1f} s; one training took "
        f"{report.train_seconds:.1f} s{peak}"
    )
    print(f"client {client.number} ({client.name}) can take part")


def behaviour(args: argparse.Namespace) -> ClientOptions:
    """Return when clients give up a connection or a server."""
    from spyker.net.client_context import ClientOptions

    return ClientOptions(args.stall, args.patience, args.return_after, args.give_up)


def network_options(args: argparse.Namespace, transport: str = "auto", proxy: str | None = None) -> NetworkOptions:
    """Return how clients connect: as the arguments say, by default as given."""
    from spyker.net.transports import NetworkOptions, check_proxy

    if args.proxy is not None:
        proxy = check_proxy(args.proxy, "--proxy")
    return NetworkOptions(args.keepalive, args.transport or transport, proxy, args.state)


def read_options(args: argparse.Namespace) -> dict[str, str]:
    """Parse ``--option`` and ``--data``."""
    options = dict(split_pair("--option", text, "KEY=VALUE") for text in args.options)
    return options if args.data is None else options | {"data": args.data}


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
