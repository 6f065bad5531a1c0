"""``spyker certs``: the certificates and credentials of a deployment."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from spyker.cli.help import examples
from spyker.cli.options import require_deploy
from spyker.errors import UsageError


def add_certs(commands: Any) -> None:
    """``spyker certs``."""
    parser = commands.add_parser(
        "certs",
        help="make, or renew, the certificates of servers and the credentials of clients",
        description="Make a certificate authority, a certificate for each server and a credential for each client.",
    )
    parser.add_argument("out", type=Path, metavar="OUT", help="the folder to make")
    parser.add_argument("--servers", type=int, metavar="N", help="so many; HierFAVG's cloud is one, too")
    parser.add_argument("--clients", type=int, metavar="N", help="so many in all")
    parser.add_argument(
        "--renew",
        action="append",
        metavar="NAME",
        help="make nothing but a new certificate for server-I, or a new credential for client-K; may be repeated",
    )
    parser.add_argument(
        "--host",
        action="append",
        default=None,
        metavar="[I=]HOST",
        dest="hosts",
        help="a DNS name or an address of all servers, or of server I; may be repeated; default: loopback, or with "
        "--renew what the certificate had",
    )
    parser.add_argument("--days", type=float, default=365.0, metavar="D", help="how long certificates are valid: 365")
    parser.add_argument("--overwrite", action="store_true", help="replace what OUT holds already")
    examples(
        parser,
        "spyker certs certs --servers 4 --clients 100 --host 0=hk.example.org --host 1=paris.example.org",
        "spyker certs certs --renew server-2 --renew client-7 --days 90",
    )
    parser.set_defaults(command=command_certs)


def command_certs(args: argparse.Namespace) -> int:
    """Make them, and say who gets what."""
    require_deploy()
    from spyker.net.certificate_issuing import LOOPBACK, make_deployment, renew  # only now: an extra

    if args.renew:
        if args.overwrite or args.servers is not None or args.clients is not None:
            raise UsageError("--renew", "renews what is there", "Leave out --servers, --clients and --overwrite")
        renew(args.out, args.renew, args.hosts, args.days)
        for name in args.renew:
            print(f"{args.out}/{name}  is new")
        if any(name.startswith("client") for name in args.renew):
            print(f"{args.out}/clients.json  for every server; the old credential is worthless once they have it")
        return 0
    for option, value in (("--servers", args.servers), ("--clients", args.clients)):
        if value is None:
            raise UsageError(option, "is missing", "Say how many")
    hosts = args.hosts or LOOPBACK
    make_deployment(args.out, args.servers, args.clients, hosts, args.days, overwrite=args.overwrite)
    print(f"{args.out}/server-I    for server I: its certificate and key")
    if args.clients:
        print(f"{args.out}/client-K    for client K: its credential")
    print(f"{args.out}/clients.json for every server")
    print(f"{args.out}/ca.key      for nobody: keep it apart, to renew certificates")
    return 0
