"""``spyker members``: who the servers of a running deployment are."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spyker.cli.help import examples
from spyker.cli.numbers import zero_or_more
from spyker.cli.options import require_deploy
from spyker.cli.output import add_json
from spyker.errors import UsageError
from spyker.plots.table import print_table


def add_members(commands: Any) -> None:
    """``spyker members``."""
    parser = commands.add_parser(
        "members",
        help="list, add, remove or replace the servers of a running deployment",
        description="Ask a running server of this machine who the servers are, or have them vote on a change: announce "
        "one more, do without one, or give one's place to a server that begins anew. Who is announced is then started "
        "with spyker serve --join.",
    )
    parser.add_argument("what", choices=("list", "add", "remove", "replace"), help="what to do")
    parser.add_argument("config", type=Path, metavar="CONFIG", help="of a server that runs on this machine")
    parser.add_argument("server", nargs="?", type=int, metavar="SERVER", help="the number of the server that changes")
    parser.add_argument("address", nargs="?", metavar="HOST:PORT", help="add, replace: where other servers reach it")
    parser.add_argument(
        "--force", action="store_true", help="without a vote; only if more than half of the servers are gone for good"
    )
    parser.add_argument(
        "--timeout", type=zero_or_more, default=60.0, metavar="S", help="wait so long for the vote: 60 s"
    )
    add_json(parser)
    examples(
        parser,
        "spyker members list server-0/config.toml",
        "spyker members replace server-0/config.toml 2  # it and its disk are gone; then: serve --join",
        "spyker members add server-0/config.toml 4 10.0.0.9:7100",
        "spyker members remove server-0/config.toml 3",
    )
    parser.set_defaults(command=command_members)


def command_members(args: argparse.Namespace) -> int:
    """Ask, or order and wait."""
    require_deploy()
    from spyker.errors import DeploymentError
    from spyker.net.admin_socket import send_command
    from spyker.net.server_config import check_address, load_config

    config = load_config(args.config)
    state = config.path(config.deploy.state)
    if args.what == "list":
        args.answer = show(send_command(state, {"order": "members"}))
        return 0
    if args.server is None or args.server < 0:
        raise UsageError("SERVER", f"{args.server} is not allowed", "Give the number of the server that changes")
    if args.address is not None:
        check_address(args.address, "HOST:PORT")
    elif args.what == "add":
        raise UsageError("HOST:PORT", "is missing", "Say where other servers will reach the new one")
    before = send_command(state, {"order": "members"})
    if args.address is not None:
        refuse_address_of_another(args.address, args.server, before["members"], config.deploy.peers)
    order = {"order": "change", "what": args.what, "server": args.server, "address": args.address, "force": args.force}
    send_command(state, order)
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
    outcome = "Nothing is changed" if withdrawn else "Some have voted already, so it may still be decided"
    raise DeploymentError(
        f"the servers have not agreed within {args.timeout:g} s: more than half of them must be there. {outcome}. "
        "If the others are gone for good, add --force"
    )


def refuse_address_of_another(address: str, server: int, members: list[dict[str, Any]], peers: Sequence[str]) -> None:
    """An address belongs to one server."""
    for member in members:
        j = member["server"]
        known = member["address"] or (peers[j] if j < len(peers) else "")
        if known == address and j != server:
            raise UsageError("HOST:PORT", f"is {address}, the address of server {j}", "Give the new one's own")


def show(answer: dict[str, Any]) -> dict[str, Any]:
    """Print the list."""
    print(f"epoch {answer['epoch']}, as server {answer['server']} knows{' (it has the token)' * answer['token']}")
    rows = [
        [str(m["server"]), m["state"], m["address"] or "as configured", m["lineage"][:8], f"{m['silent']:.1f} s"]
        for m in answer["members"]
    ]
    print_table(["server", "state", "address", "lineage", "silent for"], rows, words=4)
    if answer["pending"]:
        print(f"to be voted on: {answer['pending']}")
    return answer
