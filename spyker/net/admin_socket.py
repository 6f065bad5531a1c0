"""Commands to a running server over a Unix socket in its state folder, as one JSON object per line.

The path of a socket is limited to about a hundred characters, so both sides address it through an open folder.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from spyker.errors import DeploymentError
from spyker.net.driver import Driver
from spyker.node.events import MembershipChangeForced, MembershipChangeRequested, MembershipRequestsWithdrawn
from spyker.node.views import NOBODY, Member, MembershipChange

SOCKET = "control"
MAX_LINE = 1 << 16  # bytes
TIMEOUT = 10.0  # seconds


@contextlib.contextmanager
def short_path(folder: Path) -> Iterator[str]:
    """Yield a short path to the socket."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{opened}/{SOCKET}"
    finally:
        os.close(opened)


async def serve_commands(folder: Path, driver: Driver) -> asyncio.AbstractServer:
    """Serve commands until the returned server is closed. Only the owner of the folder can connect."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, ValueError, asyncio.IncompleteReadError, TimeoutError):
            async with asyncio.timeout(TIMEOUT):
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
            return await asyncio.start_unix_server(serve, path, limit=MAX_LINE)
    finally:
        os.umask(before)


def execute_command(driver: Driver, order: dict[str, Any]) -> dict[str, Any]:
    """Carry out a command and return the membership."""
    if order["order"] == "change":
        change_members(driver, order)
    elif order["order"] == "withdraw":
        withdrawn = driver.node.membership.withdrawable
        driver.deliver(MembershipRequestsWithdrawn(now=driver.now()))
        return members(driver) | {"withdrawn": withdrawn}
    elif order["order"] != "members":
        raise ValueError(f"unknown command {order['order']!r}")
    return members(driver)


def change_members(driver: Driver, order: dict[str, Any]) -> None:
    """Request a vote on a membership change, or change the membership at once if the command is forced."""
    servers = driver.node.view.members
    server, what = int(order["server"]), order["what"]
    before = servers.get(server)
    if what == "add" and before is not None:
        raise ValueError(f"server {server} is already a member; replace it, or add another number")
    if what != "add" and before is None:
        raise ValueError(f"server {server} is not one of the servers {sorted(servers)}")
    if server == driver.node.id:
        raise ValueError(f"server {server} cannot change its own membership; ask another server")
    if what == "remove":
        wanted = None
    else:
        address = order.get("address") or (before.address if before is not None else "")
        wanted = Member(NOBODY, address, before.learner if before is not None else True)
    change, now = MembershipChange(server, wanted), driver.now()
    if order.get("force"):
        driver.deliver(MembershipChangeForced(change, now=now))
    else:
        driver.deliver(MembershipChangeRequested(change, before, now=now))


def members(driver: Driver) -> dict[str, Any]:
    """Return the membership as this server knows it."""
    status = driver.node.status(driver.now())
    servers = [asdict(member) | {"silent": round(member.silent, 1)} for member in status.members]
    return {
        "server": status.server,
        "epoch": status.epoch,
        "token": status.has_token,
        "members": servers,
        "pending": status.pending_proposals,
        "replaced_clients": driver.replaced_clients(),
    }


def send_command(folder: Path, order: dict[str, Any]) -> dict[str, Any]:
    """Send a command to a running server and return its answer.

    Raises:
        DeploymentError: no server answers, or it rejects the command.

    """
    try:
        with short_path(folder) as path, socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(TIMEOUT)
            connection.connect(path)
            connection.sendall(json.dumps(order).encode() + b"\n")
            with connection.makefile("rb") as answers:
                answer: dict[str, Any] = json.loads(answers.readline(MAX_LINE * 16))
    except (OSError, ValueError) as error:
        raise DeploymentError(
            f"no server answers in {folder} ({error}). Give the configuration of a server that runs on this machine"
        ) from None
    if "error" in answer:
        raise DeploymentError(answer["error"])
    return answer
