"""``spyker certs``: the certificates and credentials of a deployment."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from spyker.cli.help import examples
from spyker.errors import UsageError


def add_certs(commands: Any) -> None:
    """``spyker certs``."""
    parser = commands.add_parser(
        "certs",
        help="create or renew the certificates of servers and the credentials of clients",
        description="Create a certificate authority, a certificate for each server and a credential for each client.",
    )
    parser.add_argument("out", type=Path, metavar="OUT", help="folder to create")
    parser.add_argument("--servers", type=int, metavar="N", help="number of servers, including HierFAVG's cloud")
    parser.add_argument("--clients", type=int, metavar="N", help="total number of clients")
    parser.add_argument(
        "--renew",
        action="append",
        metavar="NAME",
        help="create only a new certificate for server-I or a new credential for client-K; may be repeated",
    )
    parser.add_argument(
        "--host",
        action="append",
        default=None,
        metavar="[I=]HOST",
        dest="hosts",
        help="DNS name or address of all servers, or of server I; may be repeated; default: loopback, or with --renew "
        "those of the old certificate",
    )
    parser.add_argument(
        "--days", type=float, default=365.0, metavar="D", help="validity of certificates in days; default: 365"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace the content of OUT")
    examples(
        parser,
        "spyker certs certs --servers 4 --clients 100 --host 0=hk.example.org --host 1=paris.example.org",
        "spyker certs certs --renew server-2 --renew client-7 --days 90",
    )
    parser.set_defaults(command=command_certs)


def command_certs(args: argparse.Namespace) -> int:
    """Create or renew certificates, and print the files to distribute."""
    from spyker.net.certificate_issuing import LOOPBACK, make_deployment, renew

    if args.renew:
        if args.overwrite or args.servers is not None or args.clients is not None:
            raise UsageError(
                "--renew", "conflicts with other options", "Leave out --servers, --clients and --overwrite"
            )
        renew(args.out, args.renew, args.hosts, args.days)
        for name in args.renew:
            print(f"{args.out}/{name}  created")
        if any(name.startswith("client") for name in args.renew):
            print(f"{args.out}/clients.json  for every server; revokes the old credential")
        return 0
    for option, value in (("--servers", args.servers), ("--clients", args.clients)):
        if value is None:
            raise UsageError(option, "is missing", "Give the number")
    hosts = args.hosts or LOOPBACK
    make_deployment(args.out, args.servers, args.clients, hosts, args.days, overwrite=args.overwrite)
    print(f"{args.out}/server-I    for server I: its certificate and key")
    if args.clients:
        print(f"{args.out}/client-K    for client K: its credential")
    print(f"{args.out}/clients.json for every server")
    print(f"{args.out}/ca.key      private: store it in a safe place, to renew certificates")
    return 0
