"""Clients that lose their server: which one they turn to, when, and what they know of the servers."""

import asyncio
import contextlib
import io
import json
import re
import signal
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from deployment import DEADLINE, until
from relay import relay
from test_federation import create, processes

from chaos.failover import KINDS, failover_times
from spyker.net import nearest_server
from spyker.net.channels import handler
from spyker.net.client_link import ClientLink
from spyker.net.health import CHECK, Health
from spyker.net.json_log import JsonLog
from spyker.net.known_servers import MEMBERS_FILE, KnownServers
from spyker.net.nearest_server import ServerRanking, round_trip
from spyker.net.transports import Connections, NetworkOptions, TransportChoice
from spyker.node.rejection import Rejection

HOME, NEAR, FAR = "home:1", "near:1", "far:1"


class Probed(ServerRanking):
    """Servers that answer after this many seconds, or never."""

    def __init__(self, seconds: Mapping[str, float | None]) -> None:
        connections = Connections(NetworkOptions(10.0), TransportChoice("grpc"), None)
        super().__init__(KnownServers(list(seconds)), connections)
        self.answers = dict(seconds)
        self.ended: set[str] = set()

    async def measure(self, address: str) -> float | None:
        seconds = self.answers[address]
        await asyncio.sleep(1000.0 if seconds is None else seconds)
        self.ended.add(address)
        return seconds


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The servers that do not answer a probe on a connection of its own."""
    found: set[str] = set()

    async def answer(connections: Connections, address: str, probes: int = 3) -> float:
        if address in found:
            raise TimeoutError
        return 0.0

    monkeypatch.setattr(nearest_server, "round_trip", answer)
    return found


def test_the_nearest_server_is_chosen_without_waiting_for_one_that_is_lost() -> None:
    ranking = Probed({HOME: None, FAR: 0.1, NEAR: 0.05})
    assert asyncio.run(ranking.best(fresh=True)) == NEAR
    assert ranking.ended == {NEAR, FAR}, "one that is not much farther is waited for"
    assert ranking.seconds[HOME] is None


@contextlib.asynccontextmanager
async def two_servers(ended: asyncio.Queue[str]) -> AsyncIterator[tuple[list[str], list[str]]]:
    """Addresses of two servers, and of relays to them that note the ends of connections."""
    async with contextlib.AsyncExitStack() as stack:
        servers = [grpc.aio.server() for _ in range(2)]
        ports = [f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}" for server in servers]
        for server in servers:
            server.add_generic_rpc_handlers((handler(CHECK, Health().check),))
            await server.start()
            stack.push_async_callback(server.stop, None)
        yield ports, [await stack.enter_async_context(relay(port, ended=ended)) for port in ports]


class Visitor(ClientLink):
    """A client that leaves each server at once."""

    def __init__(self, connections: Connections) -> None:
        self.connections = connections

    async def _handshake(self, stream: Any, address: str) -> None:
        await round_trip(self.connections, address, 1)

    async def _answer_all(self, stream: Any) -> None:
        await asyncio.sleep(1000.0)

    async def _work(self, stream: Any, address: str) -> bool:
        return False


def test_a_client_that_moves_leaves_no_connection_open() -> None:
    """The server would close it after ten seconds, with a warning: nobody is authenticated on it."""

    async def move() -> None:
        ended = asyncio.Queue[str]()
        async with two_servers(ended) as (ports, (near, far)):
            link = Visitor(Connections(NetworkOptions(10.0), TransportChoice("grpc"), None))
            await link._attend(near)
            await link._attend(near)
            assert ended.empty(), "it may come back at once"
            await link._attend(far)
            async with asyncio.timeout(5.0):
                assert await ended.get() == ports[0]
            await link.connections.close()

    asyncio.run(move())


def test_measuring_servers_leaves_no_connection_open() -> None:
    async def measure() -> None:
        ended = asyncio.Queue[str]()
        async with two_servers(ended) as (ports, (near, far)):
            connections = Connections(NetworkOptions(10.0), TransportChoice("grpc"), None)
            ranking = ServerRanking(KnownServers([near, far]), connections)
            await ranking.best(fresh=True)
            assert None not in ranking.seconds.values()
            async with asyncio.timeout(DEADLINE):
                assert {await ended.get(), await ended.get()} == set(ports)
            assert not await ranking.silent(near)
            async with asyncio.timeout(DEADLINE):
                assert await ended.get() == ports[0]

    asyncio.run(measure())


def test_a_server_is_left_out_if_another_answers() -> None:
    ranking = Probed({HOME: 0.0, FAR: 0.1})
    assert asyncio.run(ranking.best(without=HOME)) == FAR
    ranking.answers[FAR] = None
    ranking.seconds = {HOME: 0.0, FAR: None}
    assert asyncio.run(ranking.best(without=HOME)) == HOME


def test_a_server_is_silent_only_if_another_one_answers(silent: set[str]) -> None:
    ranking = Probed({HOME: None, FAR: 0.0})
    assert not asyncio.run(ranking.silent(HOME)), "it answers"
    silent.add(HOME)
    assert asyncio.run(ranking.silent(HOME))


def test_no_server_is_silent_if_none_answers(silent: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The fault may be on the client's side: a slow link, full of its own update."""
    silent |= {HOME, FAR}
    ranking = Probed({HOME: 0.0, FAR: 0.0})

    async def nothing(address: str) -> None:
        return None

    monkeypatch.setattr(ranking, "measure", nothing)
    assert not asyncio.run(ranking.silent(HOME))


# --- The member list --------------------------------------------------------------------------------------------------


class Listed:
    """Follows lists that are JSON objects from numbers to addresses, and rejects others."""

    epoch = 0
    addresses: Mapping[int, str] = {}

    def update(self, data: bytes) -> bool:
        if not data.startswith(b"{"):
            raise Rejection("proof", "no majority has signed this")
        self.epoch += 1
        self.addresses = {int(number): address for number, address in json.loads(data).items()}
        return True


def follow(known: KnownServers, **listed: str) -> None:
    known.follow(json.dumps({name.removeprefix("s"): address for name, address in listed.items()}).encode(), LOG)


LOG = JsonLog(io.StringIO())


def test_clients_follow_servers_that_come_move_and_go() -> None:
    known = KnownServers([HOME, NEAR], {HOME: 0, NEAR: 1}, Listed())
    follow(known, s0="", s1="", s2=FAR)
    assert known.addresses == [FAR, HOME, NEAR]
    assert known.numbers[FAR] == 2
    follow(known, s0="moved:1", s2=FAR)
    assert known.addresses == ["moved:1", FAR], "server 0 has another address, and server 1 was removed"


def test_an_address_whose_server_is_not_known_is_kept_until_it_is() -> None:
    known = KnownServers([HOME], None, Listed())
    follow(known, s1=NEAR)
    assert known.addresses == [NEAR, HOME]
    known.met(HOME, 0)
    follow(known, s1=NEAR)
    assert known.addresses == [NEAR]


def test_lists_survive_the_process_and_are_verified_again(tmp_path: Path) -> None:
    follow(KnownServers([HOME], {HOME: 0}, Listed(), tmp_path), s0="", s1=NEAR)
    assert KnownServers([HOME], {HOME: 0}, Listed(), tmp_path).addresses == [NEAR, HOME]
    (tmp_path / MEMBERS_FILE).write_text('["forged"]')
    assert KnownServers([HOME], {HOME: 0}, Listed(), tmp_path).addresses == [HOME]
    (tmp_path / MEMBERS_FILE).write_text('{"a": ')
    assert KnownServers([HOME], {HOME: 0}, Listed(), tmp_path).addresses == [HOME]


def test_a_list_without_proof_changes_nothing() -> None:
    known = KnownServers([HOME], {HOME: 0}, Listed())
    with pytest.raises(Rejection):
        known.follow(b"forged", LOG)
    assert known.addresses == [HOME]


# --- Real processes ---------------------------------------------------------------------------------------------------


def test_a_client_that_was_given_one_server_learns_of_the_other_and_turns_to_it(tmp_path: Path) -> None:
    out = tmp_path / "federation"
    assert create(out, clients="charite mayo") == 0
    file = out / "client-charite" / "client.toml"
    text = re.sub(r"servers = \[(\"[^\"]*\"), .*\]", r"servers = [\1]", file.read_text("utf-8"))
    file.write_text(re.sub(r"numbers = \[0, 1\]", "numbers = [0]", text), "utf-8")
    with processes(out) as started:
        for name in ("server-paris", "server-tokyo"):
            started.start("serve", name)
            started.await_line(name, "listening")
        started.start("join", "client-charite", "--paced")
        assert started.await_line("client-charite", "attending")["server"] == 0
        until(lambda: any(len(line["servers"]) == 2 for line in started.log("client-charite", "servers")))

        def attended() -> list[int]:
            return [line["server"] for line in started.log("client-charite", "attending")]

        started.running["server-paris"].kill()
        started.running["server-paris"].wait()
        until(lambda: attended() == [0, 1])
        client = started.running["client-charite"]
        client.send_signal(signal.SIGTERM)
        assert client.wait(200) == 0
        started.start("join", "client-charite", "--paced")
        until(lambda: attended() == [0, 1, 1]), "it has stored the list"


@pytest.mark.slow
@pytest.mark.parametrize("how", KINDS)
def test_a_client_turns_to_another_server(tmp_path: Path, how: str) -> None:
    assert len(failover_times(tmp_path, how, 1)) == 1
