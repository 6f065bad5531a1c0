"""``spyker clients``: the clients that may connect to a deployment."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from spyker.cli.help import examples
from spyker.cli.output import add_json
from spyker.errors import UsageError
from spyker.plots.table import print_table


def add_clients(commands: Any) -> None:
    """``spyker clients``."""
    parser = commands.add_parser(
        "clients",
        help="list, add or remove the clients of a deployment",
        description="Change clients.json in a folder created by spyker certs. Servers reload a changed file without a "
        "restart.",
    )
    parser.add_argument("what", choices=("list", "add", "remove"), help="action")
    parser.add_argument("folder", type=Path, metavar="CERTS", help="folder created by spyker certs")
    parser.add_argument("client", nargs="?", type=int, metavar="K", help="add, remove: the client's number")
    add_json(parser)
    examples(
        parser,
        "spyker clients list certs",
        "spyker clients add certs 100  # creates certs/client-100 for the client",
        "spyker clients remove certs 7  # revokes its credential on all servers that have the new clients.json",
    )
    parser.set_defaults(command=command_clients)


def command_clients(args: argparse.Namespace) -> int:
    """Change the clients, and print the files to distribute."""
    from spyker.net.certificate_issuing import add_client, remove_client
    from spyker.net.certificates import CLIENTS, load_credentials

    if args.what == "list":
        known = load_credentials(args.folder / CLIENTS)
        rows = [[str(client), digest[:16]] for digest, client in sorted(known.items(), key=lambda each: each[1])]
        print_table(["client", "digest of its credential"], rows, words=2)
        args.answer = {str(client): digest for digest, client in known.items()}
        return 0
    if args.client is None:
        raise UsageError("K", "is missing", "Give the number of the client")
    if args.what == "add":
        add_client(args.folder, args.client)
        print(f"{args.folder}/client-{args.client}    for client {args.client}: its credential")
    else:
        remove_client(args.folder, args.client)
    print(f"{args.folder}/{CLIENTS} for every server, which reloads it")
    return 0
