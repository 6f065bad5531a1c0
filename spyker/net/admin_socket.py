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

import msgspec

from spyker.errors import DeploymentError
from spyker.net.driver import Driver
from spyker.node.events import MembershipChangeForced, MembershipChangeRequested, MembershipRequestsWithdrawn
from spyker.node.rejection import Rejection
from spyker.node.view_proofs import ViewProof
from spyker.node.views import NOBODY, Member, MembershipChange

SOCKET = "control"
MAX_LINE = 1 << 20  # bytes
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
            except (KeyError, TypeError, ValueError, Rejection) as error:
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
        before, change = wanted_change(driver, order)
        driver.deliver(MembershipChangeRequested(change, before, now=driver.now()))
    elif order["order"] == "forced-view":
        _, change = wanted_change(driver, order)
        node, keys = driver.node, driver.node.membership.keys
        proof = ViewProof(node.view.following(node.id, change), node.view)
        unsigned = keys.authorised(b"", b"")  # in a deployment without certificates
        return {"federation": keys.federation, "proof": msgspec.json.encode(proof).decode(), "unsigned": unsigned}
    elif order["order"] == "force":
        driver.deliver(MembershipChangeForced(msgspec.json.decode(order["proof"], type=ViewProof), now=driver.now()))
    elif order["order"] == "withdraw":
        withdrawn = driver.node.membership.withdrawable
        driver.deliver(MembershipRequestsWithdrawn(now=driver.now()))
        return members(driver) | {"withdrawn": withdrawn}
    elif order["order"] != "members":
        raise ValueError(f"unknown command {order['order']!r}")
    return members(driver)


def wanted_change(driver: Driver, order: dict[str, Any]) -> tuple[Member | None, MembershipChange]:
    """Return the present entry of a server and the change that a command asks for."""
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
    known = driver.node.membership.announcements.get(server)
    revoke = known.certificate if known is not None and (what == "remove" or order.get("revoke")) else ""
    return before, MembershipChange(server, wanted, revoke)


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
        "duplicate_servers": [
            {"server": j, "reason": reason, "times": alert.times}
            for (j, reason), alert in sorted(driver.node.alerts.servers.items())
        ],
        "clients_at_two_servers": [
            driver.named(k) | {"server": j, "times": alert.times}
            for (k, j), alert in sorted(driver.node.alerts.clients.items())
        ],
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
