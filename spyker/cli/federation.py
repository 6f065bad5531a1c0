"""``spyker federation``: the folders, certificates and clients of a federation."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from spyker.cli.federation_create import FOLDER, add_create, join_command
from spyker.cli.help import examples
from spyker.cli.numbers import above_zero
from spyker.cli.output import add_json
from spyker.config.scenario import load
from spyker.errors import UsageError
from spyker.plots.table import print_table


def add_federation(commands: Any) -> None:
    """``spyker federation``."""
    parser = commands.add_parser(
        "federation",
        help="create a federation; add, remove and renew its clients and servers",
        description="Create the folders that servers and clients need, and change a federation while it runs.",
    )
    examples(
        parser,
        "spyker federation create my_task:Task --server paris=paris.example.org:7000 "
        "--server tokyo=tokyo.example.org:7000 --client charite --client mayo",
        "spyker federation add-client oslo",
        "spyker federation create --help  # options and examples of an action",
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    add_create(actions)
    add_clients(actions)
    add_add_server(actions)
    add_list(actions)
    add_renew(actions)


def add_folder(parser: argparse.ArgumentParser) -> None:
    """Add the positional FOLDER."""
    parser.add_argument(
        "folder", nargs="?", type=Path, default=FOLDER, metavar="FOLDER", help=f"the federation; default: {FOLDER}"
    )


def add_clients(actions: Any) -> None:
    """``spyker federation add-client`` and ``remove-client``."""
    parser = actions.add_parser(
        "add-client",
        help="write the folder of a new client",
        description="Write the folder of a new client. Servers need not know of it, and may run meanwhile.",
    )
    parser.add_argument("name", metavar="NAME", help="name of the client: letters, digits and dashes")
    add_folder(parser)
    examples(parser, "spyker federation add-client oslo")
    parser.set_defaults(command=command_add_client)
    parser = actions.add_parser(
        "remove-client",
        help="revoke the certificates of a client",
        description="Revoke the certificates of a client and delete its folder. Servers that receive the new "
        "revoked.json disconnect the client while they run.",
    )
    parser.add_argument("name", metavar="NAME", help="name of the client")
    add_folder(parser)
    examples(parser, "spyker federation remove-client oslo")
    parser.set_defaults(command=command_remove_client)


def command_add_client(args: argparse.Namespace) -> int:
    """Add a client, and print what to copy."""
    from spyker.net.federation_folder import load_federation

    federation = load_federation(args.folder).add_client(args.name)
    folder = federation.client_folder(args.name)
    command = join_command(folder, load(folder / "scenario.toml").task.name)
    print(f"{folder}: copy it to the machine of {args.name}, and run there: {command}")
    return 0


def command_remove_client(args: argparse.Namespace) -> int:
    """Remove a client, and print what to copy."""
    from spyker.net.federation_folder import load_federation

    federation = load_federation(args.folder).remove_client(args.name)
    print(f"{args.name} is removed; its number, {federation.clients[args.name].number}, is not used again")
    print_revocations(federation)
    return 0


def print_revocations(federation: Any) -> None:
    """Print where the list of revocations must be copied."""
    print(f"Copy {federation.path}/revoked.json to the folder of each server; it takes effect within a second or so:")
    for name, entry in federation.servers.items():
        print(f"  {entry.host}: server-{name}/revoked.json")


def add_add_server(actions: Any) -> None:
    """``spyker federation add-server``."""
    parser = actions.add_parser(
        "add-server",
        help="write the folder of a new server",
        description="Write the folder of a server that is to join running servers.",
    )
    parser.add_argument("server", metavar="NAME=HOST:PORT[/PEERPORT]", help="as in spyker federation create")
    add_folder(parser)
    examples(parser, "spyker federation add-server oslo=oslo.example.org:7000")
    parser.set_defaults(command=command_add_server)


def command_add_server(args: argparse.Namespace) -> int:
    """Add a server, and print what to copy and run."""
    from spyker.net.federation_folder import load_federation, parse_server

    name, entry = parse_server(args.server)
    federation = load_federation(args.folder).add_server(name, entry)
    entry, first = federation.servers[name], next(iter(federation.servers))
    print(f"{federation.server_folder(name)}: copy it to {entry.host}, and run:")
    print(f"  spyker members add server-{first} {entry.number} {entry.peers}  # where a server runs, such as {first}")
    print(f"  spyker serve server-{name} --join  # on {entry.host}")
    print(f'Add "{entry.clients}" to client.servers and {entry.number} to client.numbers of clients that may use it.')
    return 0


def add_list(actions: Any) -> None:
    """``spyker federation list``."""
    parser = actions.add_parser("list", help="list servers and clients")
    add_folder(parser)
    add_json(parser)
    examples(parser, "spyker federation list")
    parser.set_defaults(command=command_list)


def command_list(args: argparse.Namespace) -> int:
    """Print servers and clients, and until when their certificates are valid."""
    from spyker.net.federation_folder import load_federation

    federation = load_federation(args.folder)
    rows = []
    for name, server in federation.servers.items():
        rows.append(["server", name, valid_until(federation.server_folder(name)), server.clients, str(server.number)])
    for name, client in federation.clients.items():
        until = "removed" if client.removed else valid_until(federation.client_folder(name))
        rows.append(["client", name, until, "", str(client.number)])
    heads = ["kind", "name", "valid until", "address", "number"]
    print_table(heads, rows, words=4)
    args.answer = [dict(zip(heads, row, strict=True)) for row in rows]
    return 0


def valid_until(folder: Path) -> str:
    """Return until when the certificate in a folder is valid."""
    from spyker.net.certificate_check import read_certificates
    from spyker.net.certificates import CERTIFICATE

    path = folder / CERTIFICATE
    if not path.exists():
        return "unknown"
    return f"{read_certificates(path, str(path))[0].not_valid_after_utc:%Y-%m-%d}"


def add_renew(actions: Any) -> None:
    """``spyker federation renew``."""
    parser = actions.add_parser(
        "renew",
        help="create a new certificate and key for a server or client",
        description="Create a new certificate and key for a server or client, in its folder.",
    )
    parser.add_argument("name", metavar="NAME", help="name of a server or client; or its folder, such as server-paris")
    add_folder(parser)
    parser.add_argument("--days", type=above_zero, metavar="D", help="validity in days; default: as at first")
    parser.add_argument("--revoke", action="store_true", help="client: revoke the old certificate: its key was exposed")
    examples(
        parser,
        "spyker federation renew paris --days 90",
        "spyker federation renew charite --revoke  # its key was exposed",
    )
    parser.set_defaults(command=command_renew)


def command_renew(args: argparse.Namespace) -> int:
    """Renew a certificate, and print what to copy."""
    from spyker.net.certificate_issuing import check_days
    from spyker.net.certificates import client_folder
    from spyker.net.federation_folder import load_federation

    federation = load_federation(args.folder)
    if args.days is not None:
        check_days(args.days)
        federation = replace(federation, days=args.days)
    servers = [name for name in federation.servers if args.name in (name, f"server-{name}")]
    clients = [name for name in federation.members if args.name in (name, client_folder(name))]
    if servers and clients:
        problem = f"{args.name} is not allowed: a server and a client have this name"
        raise UsageError("NAME", problem, f"Write server-{servers[0]} or {client_folder(clients[0])}")
    if servers:
        if args.revoke:
            raise UsageError("--revoke", "is not allowed for a server", "Leave it out")
        federation.renew_server(servers[0])
        entry = federation.servers[servers[0]]
        print(f"{federation.server_folder(servers[0])}: copy cert.pem and key.pem to {entry.host}, restart the server")
        return 0
    name = clients[0] if clients else args.name
    federation.renew_client(name, revoke=args.revoke)
    print(f"{federation.client_folder(name)}: copy cert.pem and key.pem to the machine of {name}, restart the client")
    if args.revoke:
        print_revocations(federation)
    return 0
