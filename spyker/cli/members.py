"""``spyker members``: the membership of a running deployment."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spyker.cli.help import examples
from spyker.cli.numbers import zero_or_more
from spyker.cli.output import add_json
from spyker.errors import UsageError
from spyker.plots.table import print_table


def add_members(commands: Any) -> None:
    """``spyker members``."""
    parser = commands.add_parser(
        "members",
        help="list, add, remove or replace the servers of a running deployment",
        description="List the servers, or let them vote on a change: add, remove or replace a server. The command asks "
        "a server that runs on this machine. Start an added or replaced server with spyker serve --join.",
    )
    parser.add_argument("what", choices=("list", "add", "remove", "replace"), help="action")
    parser.add_argument(
        "config", type=Path, metavar="CONFIG", help="configuration of a server that runs on this machine"
    )
    parser.add_argument("server", nargs="?", type=int, metavar="SERVER", help="number of the server to change")
    parser.add_argument("address", nargs="?", metavar="HOST:PORT", help="add, replace: its address for other servers")
    parser.add_argument(
        "--force",
        action="store_true",
        help="change without a vote; only if a majority of the servers is permanently lost",
    )
    parser.add_argument(
        "--authority",
        type=Path,
        metavar="FOLDER",
        help="with --force: folder with the federation's ca.pem and ca.key, which sign the change",
    )
    parser.add_argument(
        "--revoke",
        action="store_true",
        help="replace: admit no server with the certificate of the replaced one any more; remove always does so",
    )
    parser.add_argument(
        "--timeout", type=zero_or_more, default=60.0, metavar="S", help="timeout of the vote in seconds; default: 60"
    )
    add_json(parser)
    examples(
        parser,
        "spyker members list server-0/config.toml",
        "spyker members replace server-0/config.toml 2  # after a disk failure; then: serve --join",
        "spyker members add server-0/config.toml 4 10.0.0.9:7100",
        "spyker members remove server-0/config.toml 3",
    )
    parser.set_defaults(command=command_members)


def command_members(args: argparse.Namespace) -> int:
    """List the members, or request a change and wait for the vote."""
    from spyker.errors import DeploymentError
    from spyker.net.admin_socket import send_command
    from spyker.net.server_config import check_address, load_config

    config = load_config(args.config)
    state = config.path(config.deploy.state)
    if args.what == "list":
        args.answer = show(send_command(state, {"order": "members"}))
        return 0
    if args.server is None or args.server < 0:
        raise UsageError("SERVER", f"{args.server} is not allowed", "Give the number of the server to change")
    if args.address is not None:
        check_address(args.address, "HOST:PORT")
    elif args.what == "add":
        raise UsageError("HOST:PORT", "is missing", "Give the new server's address for other servers")
    before = send_command(state, {"order": "members"})
    if args.address is not None:
        refuse_address_of_another(args.address, args.server, before["members"], config.deploy.peers)
    order = {"what": args.what, "server": args.server, "address": args.address, "revoke": args.revoke}
    if args.force:
        force(state, order, args.authority)
    else:
        send_command(state, {"order": "change", **order})
    limit = time.monotonic() + args.timeout
    try:
        while time.monotonic() < limit:
            now = send_command(state, {"order": "members"})
            if now["epoch"] > before["epoch"] and not now["pending"]:
                args.answer = show(now)
                return 0
            time.sleep(0.1)
    except KeyboardInterrupt:
        send_command(state, {"order": "withdraw"})
        raise
    withdrawn = send_command(state, {"order": "withdraw"})["withdrawn"]
    outcome = "Nothing was changed" if withdrawn else "Some servers have voted, so the change may still take effect"
    raise DeploymentError(
        f"no majority voted within {args.timeout:g} s. {outcome}. "
        "If the other servers are permanently lost, add --force"
    )


def force(state: Path, order: dict[str, Any], authority: Path | None) -> None:
    """Let the federation's certificate authority sign a change, and let the server apply it without a vote."""
    from spyker.net.admin_socket import send_command
    from spyker.net.forced_change import sign_forced

    answer = send_command(state, {"order": "forced-view", **order})
    if authority is None and not answer["unsigned"]:
        raise UsageError(
            "--authority",
            "is missing: a change without a vote must be signed by the federation's certificate authority",
            "Give the folder of the federation, which has ca.pem and ca.key",
        )
    proof = sign_forced(answer["proof"], answer["federation"], authority)
    send_command(state, {"order": "force", "proof": proof})


def refuse_address_of_another(address: str, server: int, members: list[dict[str, Any]], peers: Sequence[str]) -> None:
    """Raise a ``UsageError`` if another server has the address."""
    for member in members:
        j = member["server"]
        known = member["address"] or (peers[j] if j < len(peers) else "")
        if known == address and j != server:
            raise UsageError(
                "HOST:PORT",
                f"{address} is not allowed: it is the address of server {j}",
                "Give the new server's address",
            )


def show(answer: dict[str, Any]) -> dict[str, Any]:
    """Print the members."""
    print(f"epoch {answer['epoch']}, according to server {answer['server']}{' (token holder)' * answer['token']}")
    rows = [
        [str(m["server"]), m["state"], m["address"] or "as configured", m["lineage"][:8], f"{m['silent']:.1f} s"]
        for m in answer["members"]
    ]
    print_table(["server", "state", "address", "lineage", "silent for"], rows, words=4)
    if answer["pending"]:
        print(f"pending vote: {answer['pending']}")
    for each in answer["replaced_clients"]:
        print(f"{named(each)} was replaced from another address {each['times']} times, last from {each['address']}")
    for each in answer["clients_at_two_servers"]:
        print(f"{named(each)} was connected here and to server {each['server']} at the same time")
    for each in answer["duplicate_servers"]:
        print(f"two processes act for server {each['server']} ({each['reason']}), found {each['times']} times")
    return answer


def named(client: dict[str, Any]) -> str:
    """Return the number of a client and, if it is known, its name."""
    return f"client {client['client']}" + (f" ({client['name']})" if "name" in client else "")
