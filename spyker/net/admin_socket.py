"""Orders to a running server, by whoever may use its state folder: a socket there, one JSON object a line each way.

The path of such a socket may have about a hundred characters, so both sides go through an open folder.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from spyker.errors import DeploymentError
from spyker.net.driver import Driver
from spyker.node.membership import OPERATOR
from spyker.node.paxos import Proposal
from spyker.node.views import NOBODY, Member, MembershipChange

SOCKET = "control"
LONGEST = 1 << 16
SECONDS = 10.0


@contextlib.contextmanager
def short_path(folder: Path) -> Iterator[str]:
    """A path to the socket that is short enough, however deep the folder is."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{opened}/{SOCKET}"
    finally:
        os.close(opened)


async def serve_commands(folder: Path, driver: Driver) -> asyncio.AbstractServer:
    """Take orders until the server is closed. Only the owner of the folder can give them."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, ValueError, asyncio.IncompleteReadError, TimeoutError):
            async with asyncio.timeout(SECONDS):
                order = json.loads(await reader.readuntil(b"\n"))
            try:
                answer = execute_command(driver, order)
            except (KeyError, TypeError, ValueError) as error:
                answer = {"error": str(error)}
            writer.write(json.dumps(answer).encode() + b"\n")
            await writer.drain()
        writer.close()

    (folder / SOCKET).unlink(missing_ok=True)
    before = os.umask(0o077)
    try:
        with short_path(folder) as path:
            return await asyncio.start_unix_server(serve, path, limit=LONGEST)
    finally:
        os.umask(before)


def execute_command(driver: Driver, order: dict[str, Any]) -> dict[str, Any]:
    """Do what is ordered, and answer how things are."""
    if order["order"] == "change":
        change_members(driver, order)
    elif order["order"] == "withdraw":
        return members(driver) | {"withdrawn": driver.node.membership.withdraw()}
    elif order["order"] != "members":
        raise ValueError(f"there is no order {order['order']!r}")
    return members(driver)


def change_members(driver: Driver, order: dict[str, Any]) -> None:
    """Have the servers vote on a change, or change the list at once if somebody insists."""
    membership = driver.node.membership
    server, what = int(order["server"]), order["what"]
    now = membership.view.members.get(server)
    if what == "add" and now is not None:
        raise ValueError(f"server {server} is one of the servers already; replace it, or add another number")
    if what != "add" and now is None:
        raise ValueError(f"server {server} is not one of the servers {sorted(membership.view.members)}")
    if server == driver.node.id:
        raise ValueError(f"server {server} is asked to do this to itself; ask another one")
    if what == "remove":
        wanted = None
    else:
        address = order.get("address") or (now.address if now is not None else "")
        wanted = Member(NOBODY, address, now.learner if now is not None else True)
    change = MembershipChange(server, wanted)
    if order.get("force"):
        driver.tell(force, driver, change)
    else:
        membership.request(Proposal(OPERATOR, change, now))


def force(driver: Driver, change: MembershipChange) -> None:
    """Without a vote."""
    driver.node.membership.force(change)
    driver.node.apply_membership()


def members(driver: Driver) -> dict[str, Any]:
    """The servers as this one knows them."""
    node = driver.node
    membership, view = node.membership, node.view
    servers = []
    for j, member in sorted(view.members.items()):
        mine = j == node.id
        lineage = node.rules.lineage if mine else membership.lineages.get(j, member.lineage)
        state = "here" if mine else "expected" if member.lineage == NOBODY else None
        if state is None:
            state = "suspected" if j in membership.suspected else "there"
        servers.append(
            {
                "server": j,
                "state": state,
                "address": member.address,
                "lineage": lineage,
                "silent": 0.0 if mine else round(membership.failure_detector.silent_for(j), 1),
            }
        )
    token = node.server is not None and node.server.has_token
    return {
        "server": node.id,
        "epoch": view.epoch,
        "token": token,
        "members": servers,
        "pending": len(membership.proposals),
    }


def send_command(folder: Path, order: dict[str, Any]) -> dict[str, Any]:
    """Tell a running server what to do; its answer."""
    try:
        with short_path(folder) as path, socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(SECONDS)
            connection.connect(path)
            connection.sendall(json.dumps(order).encode() + b"\n")
            with connection.makefile("rb") as answers:
                answer: dict[str, Any] = json.loads(answers.readline(LONGEST * 16))
    except (OSError, ValueError) as error:
        raise DeploymentError(
            f"no server answers in {folder} ({error}). Name the configuration of a server that runs on this machine"
        ) from None
    if "error" in answer:
        raise DeploymentError(answer["error"])
    return answer
