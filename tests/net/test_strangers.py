"""What somebody without any certificate can do to a server's ports: little."""

import asyncio
import os
import re
import resource
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from deployment import DEADLINE, Deployed, deployed, table, until
from grpc_health.v1 import health_pb2, health_pb2_grpc

from spyker.net import channels
from spyker.net.channels import CLIENTS_CONNECT, channel, guarded, handler, open_stream
from spyker.net.connection_limits import CROWDED, FLOOD
from spyker.net.health import CHECK, Health

SERVICE = "/grpc.health.v1.Health"
CALLS, CONNECTIONS = 150, 15
EXPECTED = {
    f"{SERVICE}/Check": grpc.StatusCode.RESOURCE_EXHAUSTED,
    f"{SERVICE}/Watch": grpc.StatusCode.UNIMPLEMENTED,
    CLIENTS_CONNECT: grpc.StatusCode.RESOURCE_EXHAUSTED,
}


def megabytes(pid: int, what: str) -> float:
    found = re.search(rf"{what}:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def attack(deployment: Deployed, method: str, count: int) -> set[grpc.StatusCode]:
    """Send a number of large calls to a method, and return the status of each."""
    body = health_pb2.HealthCheckRequest(service="x" * 4_000_000).SerializeToString()
    authority = grpc.ssl_channel_credentials((deployment.folder / "certs" / "ca.pem").read_bytes())

    async def scene() -> set[grpc.StatusCode]:
        own = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", -1)]
        lines = [grpc.aio.secure_channel(deployment.addresses[0], authority, own) for _ in range(CONNECTIONS)]
        calls = [lines[i % CONNECTIONS].unary_unary(method)(body, timeout=DEADLINE) for i in range(count)]
        codes = set(await asyncio.gather(*(call.code() for call in calls)))
        for line in lines:
            await line.close()
        return codes

    return asyncio.run(scene())


def test_large_calls_of_strangers_are_refused(tmp_path: Path) -> None:
    with deployed(table(), tmp_path) as deployment:
        server = deployment.up()
        deployment.attend("0")
        until(lambda: deployment.facts("update"))  # so this address is not banned
        for method, expected in EXPECTED.items():
            assert attack(deployment, method, 2) <= {expected, grpc.StatusCode.UNAVAILABLE}
        assert server.poll() is None


@pytest.mark.slow
@pytest.mark.parametrize("method", EXPECTED)
def test_large_calls_of_strangers_take_no_memory(tmp_path: Path, method: str) -> None:
    with deployed(table(), tmp_path) as deployment:
        server = deployment.up()
        deployment.attend("0")
        until(lambda: deployment.facts("update"))
        before = megabytes(server.pid, "VmRSS")
        codes = attack(deployment, method, CALLS)
        ended = {grpc.StatusCode.OK, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE}
        assert codes <= {EXPECTED[method], *ended}
        assert megabytes(server.pid, "VmHWM") < before + 50, "at no time"
        assert server.poll() is None


@contextmanager
def attacked(deployment: Deployed, name: str, count: int, source: str) -> Iterator[None]:
    """Strangers attack the port for clients from another process, as long as the context lasts."""
    command = [sys.executable, "-m", "chaos.strangers", "--attack", name, deployment.addresses[0]]
    options = ["--source", source, "--count", str(count)]
    process = subprocess.Popen([*command, *options], cwd=Path(__file__).parents[2])
    try:
        yield
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_strangers_leave_descriptors_for_checkpoints(tmp_path: Path) -> None:
    with deployed(table(), tmp_path, checkpoint_updates=5) as deployment:
        server = deployment.serve(0)
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (48, 48))
        deployment.servers.append(server)
        until(lambda: deployment.log("server-0", "listening"))
        assert deployment.log("server-0", "descriptor-limit")
        deployment.attend("0")
        until(lambda: deployment.facts("update"))
        with attacked(deployment, "idle", 80, "127.0.0.1"):
            until(lambda: deployment.metric("rejections_total", reason=CROWDED) > 0)
            saved = deployment.metric("saved_version")
            until(lambda: deployment.metric("saved_version") > saved + 20)
        assert not deployment.log("server-0", "checkpoint-failed")


@pytest.mark.slow
def test_clients_reconnect_while_strangers_hold_idle_connections(tmp_path: Path) -> None:
    with deployed(table(clients=(8,)), tmp_path) as deployment:
        server = deployment.up()
        with attacked(deployment, "idle", 130, "127.0.0.1"):
            until(lambda: len(os.listdir(f"/proc/{server.pid}/fd")) > 120)
            deployment.attend("0-7")
            until(lambda: len({fact["client"] for fact in deployment.facts("update")}) == 8, 45)


@pytest.mark.slow
@pytest.mark.parametrize("shared", [False, True])
def test_endless_headers_of_strangers_take_no_memory(tmp_path: Path, shared: bool) -> None:
    more = {"listen_websocket": ""} if shared else {}
    with deployed(table(), tmp_path, **more) as deployment:
        if shared:
            config = deployment.folder / "server-0" / "config.toml"
            address = deployment.addresses[0]
            config.write_text(config.read_text().replace('listen-websocket = ""', f'listen-websocket = "{address}"'))
        server = deployment.up()
        deployment.attend("0-2")
        until(lambda: deployment.facts("update"))
        before = megabytes(server.pid, "VmRSS")
        with attacked(deployment, "header-flood", 12, "127.0.0.2"):
            until(lambda: deployment.metric("rejections_total", reason=FLOOD) > 0)
            served = len(deployment.facts("update"))
            until(lambda: len(deployment.facts("update")) > served + 100)
        assert megabytes(server.pid, "VmHWM") < before + 100, "at no time"


@asynccontextmanager
async def listening(connections: int, **handlers: Any) -> AsyncIterator[int]:
    """A guarded port, in plaintext, in this process."""
    server = grpc.aio.server(options=guarded(10.0, connections))
    server.add_generic_rpc_handlers(tuple(handler(name, behaviour) for name, behaviour in handlers.items()))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield port
    finally:
        await server.stop(None)


def test_health_answers_check_for_the_whole_server_and_nothing_else() -> None:
    async def scene() -> None:
        health = Health()
        async with listening(8, **{CHECK: health.check}) as port, channel(f"127.0.0.1:{port}", 10.0, None) as line:
            stub = health_pb2_grpc.HealthStub(line)

            async def ask(service: str) -> Any:
                try:
                    return (await stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=DEADLINE)).status
                except grpc.aio.AioRpcError as error:
                    return error.code()

            assert await ask("") == health_pb2.HealthCheckResponse.SERVING
            assert await ask("spyker.Clients") == grpc.StatusCode.NOT_FOUND
            assert await ask("x" * 990) == grpc.StatusCode.NOT_FOUND
            assert await ask("x" * 1000) == grpc.StatusCode.RESOURCE_EXHAUSTED
            health.serving = False
            assert await ask("") == health_pb2.HealthCheckResponse.NOT_SERVING
            watch = stub.Watch(health_pb2.HealthCheckRequest(), timeout=DEADLINE)
            assert await watch.code() == grpc.StatusCode.UNIMPLEMENTED
            bad = line.unary_unary(CHECK)(b"\xff\xff", timeout=DEADLINE)
            assert await bad.code() == grpc.StatusCode.INVALID_ARGUMENT

    asyncio.run(scene())


def test_who_asks_for_health_and_says_nothing_is_sent_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spyker.net.health.READ_SECONDS", 0.1)

    async def scene() -> None:
        async with (
            listening(8, **{CHECK: Health().check}) as port,
            channel(f"127.0.0.1:{port}", 10.0, None) as line,
            asyncio.timeout(DEADLINE),
        ):
            assert await open_stream(line, CHECK).code() == grpc.StatusCode.DEADLINE_EXCEEDED

    asyncio.run(scene())


async def read_end(connection: socket.socket) -> None:
    """Until the other side hangs up; what it says before does not matter."""
    while await asyncio.get_running_loop().sock_recv(connection, 1 << 16):
        pass


def knock(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port))
    connection.setblocking(False)
    return connection


def test_connections_beyond_the_limit_are_closed_and_their_places_are_given_again() -> None:
    async def scene() -> None:
        async with listening(2, **{CHECK: Health().check}) as port, asyncio.timeout(DEADLINE):
            first, second, third = knock(port), knock(port), knock(port)
            await read_end(third)
            for each in (first, second, third):
                each.close()
            async with channel(f"127.0.0.1:{port}", 10.0, None) as line:
                await line.unary_unary(CHECK)(b"", wait_for_ready=True)

    asyncio.run(scene())


def test_who_never_greets_is_sent_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "HANDSHAKE_SECONDS", 0.3)

    async def scene() -> None:
        async with listening(2) as port, asyncio.timeout(DEADLINE):
            with knock(port) as silent:
                await read_end(silent)

    asyncio.run(scene())


def test_a_connection_has_few_streams_at_a_time() -> None:
    begun = asyncio.Semaphore(0)

    async def stay(requests: object, context: Any) -> None:
        begun.release()
        await asyncio.Event().wait()

    async def scene() -> None:
        async with listening(2, **{CLIENTS_CONNECT: stay}) as port, channel(f"127.0.0.1:{port}", 10.0, None) as line:
            streams = []
            async with asyncio.timeout(DEADLINE):
                for _ in range(channels.STREAMS):
                    streams.append(open_stream(line, CLIENTS_CONNECT))
                    await begun.acquire()
            streams.append(open_stream(line, CLIENTS_CONNECT))
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await begun.acquire()
            streams[0].cancel()
            async with asyncio.timeout(DEADLINE):
                await begun.acquire()
            for stream in streams:
                stream.cancel()

    asyncio.run(scene())
