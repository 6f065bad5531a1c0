"""A server that finds another one at an address than the one that should be there."""

import asyncio
import io
import json
import signal
from pathlib import Path

import grpc
import pytest
from deployment import Deployed, deployed, table, until
from node_fixtures import PARAMETERS, make_driver
from test_peer_link import TWO, fill, linked
from test_peer_link import until as soon

from spyker.algorithms.spyker import Spyker
from spyker.net import peer_link
from spyker.net.connection_hints import connection_hint
from spyker.net.peer_port import PeerPort
from spyker.net.server_config import load_config
from spyker.protocol.codec import Sizes


def test_nothing_is_remembered_of_a_wrong_server_and_it_is_named_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_link, "LONGEST_PAUSE", 0.0)
    monkeypatch.setattr(peer_link, "FIRST_PAUSE", 0.0)
    said, calls = io.StringIO(), []

    async def scene() -> None:
        callee = make_driver(tmp_path / "callee", TWO, server=0, lineage="callee's")
        caller = make_driver(tmp_path / "caller", TWO, server=0, said=said)
        fill(caller, 2)
        port = PeerPort(callee, Sizes(PARAMETERS, 2), lambda j: Spyker.receives, secure=False)

        async def counted(requests: object, context: object) -> None:
            calls.append(1)
            await port.link(requests, context)

        async with linked(counted, caller) as link:
            await soon(lambda: len(calls) > 3)
            assert not link.done()
        for driver in (caller, callee):
            assert driver.node.membership.lineages == {}
            assert driver.node.received == {}

    asyncio.run(scene())
    entries = [json.loads(line) for line in said.getvalue().splitlines()]
    assert [entry["event"] for entry in entries] == ["wrong-server"], "once, not at every attempt"
    assert (entries[0]["field"], entries[0]["expected"], entries[0]["actual"]) == ("deploy.peers[1]", 1, 0)
    assert "Correct that address" in entries[0]["error"]
    assert entries[0]["address"] in entries[0]["error"]


def swap(deployment: Deployed) -> None:
    """Swap the addresses of servers 1 and 2 in the configuration of server 0."""
    config = deployment.folder / "server-0" / "config.toml"
    lines = config.read_text("utf-8").splitlines()
    at = next(n for n, line in enumerate(lines) if line.startswith("peers = "))
    head, _, rest = lines[at].partition("[")
    addresses, _, tail = rest.partition("]")
    zero, one, two = (address.strip() for address in addresses.split(","))
    lines[at] = f"{head}[{zero}, {two}, {one}]{tail}"
    config.write_text("\n".join(lines) + "\n", "utf-8")


@pytest.mark.slow
def test_swapped_addresses_are_named_over_tls_and_mended_by_a_restart(tmp_path: Path) -> None:
    with deployed(table("spyker", (1, 1, 1)), tmp_path) as deployment:
        swap(deployment)
        processes = [deployment.up(i) for i in range(3)]
        until(lambda: len(deployment.log("server-0", "wrong-server")) == 2)
        named = {entry["expected"]: entry["actual"] for entry in deployment.log("server-0", "wrong-server")}
        assert named == {1: 2, 2: 1}
        assert not deployment.log("server-0", "link-up")
        swap(deployment)
        processes[0].send_signal(signal.SIGTERM)
        assert processes[0].wait(200) == 0
        deployment.up(0, "--resume")
        until(lambda: {entry["peer"] for entry in deployment.log("server-0", "link-up")} == {1, 2})
        for i in (1, 2):
            until(lambda i=i: deployment.log(f"server-{i}", "link-up"))
            assert not deployment.log(f"server-{i}", "peer-refused"), "nobody had remembered anything"


def test_a_client_that_cannot_reach_any_server_is_told_once_what_to_check(tmp_path: Path) -> None:
    with deployed(table("spyker", (1, 1)), tmp_path) as deployment:
        deployment.up(0)
        peers = load_config(tmp_path / "server-0" / "config.toml").deploy.listen_peers
        deployment.clients.append(deployment.join("0", [peers]))
        deployment.insecure = True
        deployment.attend("1", 0)
        for clients, told in (("0", "and not the one for servers"), ("1", "leave out --insecure")):
            name = f"clients-{clients}"
            until(lambda name=name: len(deployment.log(name, "disconnected")) >= 3)
            first, *more = deployment.log(name, "disconnected")
            assert told in first["hint"]
            assert not any("hint" in entry for entry in more)


def test_what_may_be_wrong_depends_on_how_a_connection_failed() -> None:
    closed = (grpc.StatusCode.UNAVAILABLE, "ipv4:127.0.0.1:7000: Socket closed")
    assert "leave out --insecure" in str(connection_hint(*closed, insecure=True))
    assert "started with --insecure" in str(connection_hint(*closed, insecure=False))
    assert connection_hint(grpc.StatusCode.UNAVAILABLE, "Connection refused", insecure=False) is None, (
        "it does not run yet"
    )
    assert connection_hint(grpc.StatusCode.ABORTED, "Socket closed", insecure=False) is None
    assert "ca.pem" in str(
        connection_hint(grpc.StatusCode.UNAVAILABLE, "SSL: CERTIFICATE_VERIFY_FAILED", insecure=False)
    )
