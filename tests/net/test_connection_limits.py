"""Limits on connections until their callers are authenticated."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from typing import Any

import grpc
import grpc.aio
import pytest
from deployment import DEADLINE

from chaos.strangers import CONTINUATION, HEADERS, PREFACE, SETTINGS, http2_frame, literal, request
from spyker.net import connection_limits
from spyker.net.channels import CLIENTS_CONNECT, channel, guarded, handler, open_stream
from spyker.net.connection_guard import ConnectionGuard
from spyker.net.connection_limits import CROWDED, FLOOD, TIMEOUT, AuthenticatedPeers, Connection, excess
from spyker.net.descriptors import affordable
from spyker.net.network_ban import BAN_SECONDS, MOST_BANNED, BannedNetworks, attach
from spyker.net.peer_address import forwarded_address, host_of, network_of, peer_name, socket_name

NOW = 100.0


def several(host: str, count: int, since: float = NOW) -> list[Connection]:
    return [Connection(f"ipv4:{host}:{port}", since + port / 1000) for port in range(count)]


def test_a_caller_has_limited_time_and_bytes() -> None:
    new, late, loud = several("10.0.0.1", 1)[0], several("10.0.0.2", 1, NOW - 11)[0], several("10.0.0.3", 1)[0]
    loud.received = 70_000
    assert excess([new, late, loud], 0, 100, NOW) == [(late, TIMEOUT), (loud, FLOOD)]


def test_the_network_with_the_most_connections_gives_way_first_and_its_oldest_first() -> None:
    many, few = several("10.0.0.1", 60), several("10.0.0.2", 10)
    assert excess([*many, *few], 0, 100, NOW) == [(each, CROWDED) for each in many[:20]]


def test_half_of_the_places_and_an_eighth_beyond_the_clients_are_not_for_strangers() -> None:
    strangers = several("10.0.0.1", 100)
    assert len(excess(strangers, 0, 100, NOW)) == 50
    assert len(excess(strangers, 60, 100, NOW)) == 100 - 28
    assert len(excess(strangers, 100, 100, NOW)) == 99, "one may try"


def test_descriptors_are_reserved_for_checkpoints() -> None:
    wanted = {"clients": 500, "peers": 100}
    assert affordable(wanted, 1, 1024, 20) == wanted
    assert affordable(wanted, 1, 48, 18) == {"clients": 8, "peers": 4}
    assert affordable({"clients": 500}, 0, 48, 18) == {"clients": 14}


def test_connections_have_one_name_everywhere() -> None:
    assert peer_name("::ffff:10.0.0.1", 5) == "ipv4:10.0.0.1:5" == socket_name(("10.0.0.1", 5))
    assert socket_name(("fe80::1%eth0", 5, 0, 0)) == "ipv6:%5Bfe80::1%5D:5"
    forwarded = forwarded_address(4711, "ipv4:10.0.0.1:5")
    assert socket_name(forwarded) == "ipv4:10.0.0.1:5"
    assert host_of(f"unix-abstract:{forwarded[1:].decode()}") == "ipv4:10.0.0.1"
    assert network_of("ipv6:%5B2001:db8::1%5D:5") == network_of("ipv6:%5B2001:db8::2%5D:6") == "2001:db8::/64"


# --- Bans -------------------------------------------------------------------------------------------------------------


def test_a_network_is_banned_for_a_while_unless_a_client_is_there() -> None:
    bans = BannedNetworks({"ipv4:10.0.0.1"})
    for network in ("ipv4:10.0.0.1", "ipv4:10.0.0.2"):
        bans.ban(network, NOW)
    assert bans.current(NOW) == {"ipv4:10.0.0.2"}
    assert not bans.current(NOW + BAN_SECONDS)
    for i in range(2 * MOST_BANNED):
        bans.ban(f"ipv4:10.0.1.{i}", NOW)
    assert len(bans.current(NOW)) == MOST_BANNED


def reaches(listening: socket.socket, source: str) -> bool:
    """Whether a connection from an address is accepted."""
    try:
        socket.create_connection(listening.getsockname()[:2], timeout=0.3, source_address=(source, 0)).close()
    except TimeoutError:
        return False
    return True


def test_the_kernel_drops_packets_of_banned_networks_and_of_no_others() -> None:
    others = [f"ipv4:10.0.0.{i}" for i in range(MOST_BANNED - 2)]
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        attach(listening, ["2001:db8::/64", *others, "ipv4:127.0.0.2"])
        assert not reaches(listening, "127.0.0.2")
        assert reaches(listening, "127.0.0.1")
        attach(listening, [])
        assert reaches(listening, "127.0.0.2")


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6")
def test_the_kernel_drops_packets_of_banned_ipv6_networks() -> None:
    try:
        listening = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("no IPv6")
    with closing(listening):
        attach(listening, ["ipv4:10.0.0.1", "2001:db8::/64"])
        assert reaches(listening, "::1")
        attach(listening, ["ipv4:10.0.0.1", "2001:db8::/64", "::/64"])
        assert not reaches(listening, "::1")


# --- The guard, with a gRPC server in this process --------------------------------------------------------------------


class Guarded:
    """A port of gRPC, in plaintext, under a guard that runs when a test says so."""

    def __init__(self, port: int, most: int) -> None:
        self.port, self.closed, self.authenticated = port, list[str](), AuthenticatedPeers()
        self.guard = ConnectionGuard({port: most}, self.authenticated, lambda reason, peer: self.closed.append(reason))


@asynccontextmanager
async def guarded_port(most: int) -> AsyncIterator[Guarded]:
    server = grpc.aio.server(options=guarded(10.0, most))
    port = server.add_insecure_port("127.0.0.1:0")
    found = Guarded(port, most)

    async def stay(requests: object, context: Any) -> None:
        with found.authenticated.streaming(context.peer()):
            await context.write(b"authenticated")
            while await context.read() is not grpc.aio.EOF:
                await context.write(b"received")

    server.add_generic_rpc_handlers((handler(CLIENTS_CONNECT, stay),))
    await server.start()
    try:
        yield found
    finally:
        await server.stop(None)


def connect(port: int, source: str = "127.0.0.1") -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=DEADLINE, source_address=(source, 0))


async def ended(connection: socket.socket) -> None:
    """Wait until the other side has closed a connection."""

    def read() -> None:
        try:
            while connection.recv(1 << 16):
                pass
        except ConnectionError:
            pass

    await asyncio.to_thread(read)


def test_endless_headers_end_the_connection_and_the_network_is_banned() -> None:
    flood = http2_frame(CONTINUATION, 0, 1, literal(b"x" * 60, b"y" * 60) * 130) * 5

    async def scene() -> None:
        async with guarded_port(16) as found, asyncio.timeout(DEADLINE):
            with connect(found.port, "127.0.0.2") as stranger:
                found.guard.inspect(NOW)
                stranger.sendall(PREFACE + http2_frame(SETTINGS, 0, 0, b""))
                stranger.sendall(http2_frame(HEADERS, 0, 1, request(CLIENTS_CONNECT)) + flood)
                while not found.guard.inspect(NOW):  # until the bytes have arrived
                    await asyncio.sleep(0.01)
                await ended(stranger)
            assert found.closed == [FLOOD]
            with pytest.raises(TimeoutError):
                socket.create_connection(("127.0.0.1", found.port), 0.3, source_address=("127.0.0.2", 0))
            connect(found.port).close()
            found.guard.inspect(NOW + BAN_SECONDS + 1)
            connect(found.port, "127.0.0.2").close()

    asyncio.run(scene())


def test_an_authenticated_connection_may_send_as_much_as_it_likes_and_last(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        async with guarded_port(16) as found, channel(f"127.0.0.1:{found.port}", 10.0, None) as line:
            stream = open_stream(line, CLIENTS_CONNECT)
            async with asyncio.timeout(DEADLINE):
                assert await stream.read() == b"authenticated"
                for i in range(3):
                    await stream.write(bytes(100_000))
                    assert await stream.read() == b"received"
                    assert not found.guard.inspect(NOW + 1000 * i)
                await stream.done_writing()
                assert await stream.read() is grpc.aio.EOF
                while found.guard.inspect(NOW + 4000):
                    await asyncio.sleep(0.01)
                assert not found.closed, "the bytes of its stream do not count afterwards"
                assert found.guard.inspect(NOW + 4000 + connection_limits.AUTHENTICATION_SECONDS + 1) == 1
                assert found.closed == [TIMEOUT]

    asyncio.run(scene())


def test_idle_strangers_cannot_hold_the_places_of_clients() -> None:
    async def scene() -> None:
        async with guarded_port(16) as found, asyncio.timeout(DEADLINE):
            strangers = [connect(found.port, "127.0.0.2") for _ in range(16)]
            while not found.guard.inspect(NOW):  # until gRPC has accepted them
                await asyncio.sleep(0.01)
            async with channel(f"127.0.0.1:{found.port}", 10.0, None) as line:
                while True:
                    stream = open_stream(line, CLIENTS_CONNECT)
                    try:
                        assert await stream.read() == b"authenticated"
                        break
                    except grpc.aio.AioRpcError:  # gRPC has not noticed all that the guard has closed
                        found.guard.inspect(NOW)
                found.guard.inspect(NOW)
                assert set(found.closed) == {CROWDED}
                stream.cancel()
            for each in strangers:
                each.close()

    asyncio.run(scene())
