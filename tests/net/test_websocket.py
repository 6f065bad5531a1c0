"""WebSocket as a transport: handlers and clients notice no difference to gRPC."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from node_fixtures import PARAMETERS, make_driver
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from spyker.net import spyker_pb2 as pb
from spyker.net import websocket_stream
from spyker.net.channels import CLIENTS_CONNECT, channel, open_stream
from spyker.net.channels import handler as grpc_handler
from spyker.net.client_port import ClientLimits, ClientPort
from spyker.net.frames import FRAME_LIMIT, PROTOCOL
from spyker.net.json_log import JsonLog
from spyker.net.streams import StreamEnded
from spyker.net.websocket_port import WebSocketPort
from spyker.net.websocket_stream import PREFIX, end_if_silent, open_websocket
from spyker.protocol.codec import Sizes
from spyker.protocol.messages import Update

METHOD = "/test/Method"
DEADLINE = 60.0


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_a_client_has_the_same_address_over_both_transports(host: str) -> None:
    """A change of address is reported as a possible theft of its key, a change of transport is not."""
    found = list[str]()

    async def handler(requests: object, context: Any) -> None:
        found.append(context.peer().rpartition(":")[0])

    async def scene() -> None:
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((grpc_handler(METHOD, handler),))
        number = server.add_insecure_port(f"{host}:0")
        await server.start()
        async with channel(f"{host}:{number}", 10.0, None) as connection:
            assert await open_stream(connection, METHOD).read() is grpc.aio.EOF
        await server.stop(None)
        async with listening(handler, host=host) as address:
            assert await (await opened(address)).read() is grpc.aio.EOF
        assert found == [found[0]] * 2

    asyncio.run(scene())


@contextlib.asynccontextmanager
async def listening(
    handler: Any, *, host: str = "127.0.0.1", method: str = METHOD, keepalive: float = 10.0, most: int = 8
) -> AsyncIterator[str]:
    port = WebSocketPort({method: handler}, keepalive, most, JsonLog(io.StringIO()))
    number = await port.listen(f"{host}:0", None, "deploy.listen-websocket")
    try:
        async with asyncio.timeout(DEADLINE):
            yield f"{host}:{number}"
    finally:
        await port.stop(0.0)


async def opened(address: str, method: str = METHOD, keepalive: float = 10.0) -> Any:
    return await open_websocket(address, method, keepalive=keepalive, tls=None, proxy=None)


async def echo(requests: object, context: Any) -> None:
    while (frame := await context.read()) is not grpc.aio.EOF:
        await context.write(frame)


def test_frames_travel_both_ways() -> None:
    async def handler(requests: object, context: Any) -> None:
        for _ in range(3):
            await context.write(await context.read())

    async def scene() -> None:
        async with listening(handler) as address:
            stream = await opened(address)
            for frame in (b"", b"x", bytes(FRAME_LIMIT)):
                await stream.write(frame)
                assert await stream.read() == frame
            assert await stream.read() is grpc.aio.EOF
            assert (await stream.code(), await stream.details()) == (grpc.StatusCode.OK, "")

    asyncio.run(scene())


async def write_until_it_ends(stream: Any) -> None:
    while True:
        await stream.write(bytes(1 << 16))


@pytest.mark.parametrize("end", ["read", "write", "code"])
def test_a_status_arrives_whole_whatever_the_client_is_doing(end: str) -> None:
    """It may be longer than a close frame allows."""
    said = "mismatch: " + "long " * 100

    async def handler(requests: object, context: Any) -> None:
        await context.read()
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, said)

    async def scene() -> None:
        async with listening(handler) as address:
            stream = await opened(address)
            await stream.write(b"hello")
            if end == "read":
                assert await stream.read() is grpc.aio.EOF
            elif end == "write":
                with pytest.raises(StreamEnded) as ended:
                    await write_until_it_ends(stream)
                assert (ended.value.code, str(ended.value)) == (grpc.StatusCode.FAILED_PRECONDITION, said)
            assert (await stream.code(), await stream.details()) == (grpc.StatusCode.FAILED_PRECONDITION, said)

    asyncio.run(scene())


def test_a_handler_is_cancelled_when_its_connection_is_gone() -> None:
    """Even while it does not read, as one does that waits for the end of a stream."""
    entered, cancelled = asyncio.Event(), asyncio.Event()

    async def handler(requests: object, context: Any) -> None:
        entered.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async def scene() -> None:
        async with listening(handler) as address:
            stream = await opened(address)
            await entered.wait()
            stream.cancel()
            await cancelled.wait()

    asyncio.run(scene())


def test_a_client_that_is_cancelled_learns_it_as_with_grpc() -> None:
    async def scene() -> None:
        async with listening(echo) as address:
            stream = await opened(address)
            reading = asyncio.create_task(stream.read())
            await asyncio.sleep(0)
            stream.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading

    asyncio.run(scene())


def test_a_silent_connection_ends_on_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without pings nothing is heard, as if a cable had been cut."""
    real = websocket_stream.limits
    deaf = lambda keepalive: real(keepalive) | {"ping_interval": None}  # noqa: E731
    monkeypatch.setattr(websocket_stream, "limits", deaf)
    monkeypatch.setattr("spyker.net.websocket_port.limits", deaf)
    ended = asyncio.Event()

    async def handler(requests: object, context: Any) -> None:
        try:
            await context.read()
        finally:
            ended.set()

    async def scene() -> None:
        async with listening(handler, keepalive=0.05) as address:
            stream = await opened(address, keepalive=1000.0)
            await ended.wait()
            assert await stream.code() is grpc.StatusCode.UNAVAILABLE
        async with listening(handler, keepalive=1000.0) as address:
            stream = await opened(address, keepalive=0.05)
            assert await stream.code() is grpc.StatusCode.UNAVAILABLE

    asyncio.run(scene())


class Watched:
    """A connection at given times, in keepalives; bytes come at some of them, and it may not be reading at others."""

    def __init__(self, times: list[float], heard: set[float], deaf: set[float]) -> None:
        self._times, self._heard, self._deaf = iter(times), heard, deaf
        self.heard = self.now = 0.0
        self.aborted: float | None = None
        self.loop = self.transport = self

    def time(self) -> float:
        self.now = next(self._times) * KEEPALIVE
        if self.now / KEEPALIVE in self._heard:
            self.heard = self.now
        return self.now

    def is_reading(self) -> bool:
        return self.now / KEEPALIVE not in self._deaf

    def abort(self) -> None:
        self.aborted = self.now / KEEPALIVE


KEEPALIVE = 2.0**-10


@pytest.mark.parametrize(
    ("times", "heard", "deaf", "aborted"),
    [
        ([0, 1, 1.5, 2], set(), set(), 2),
        ([0, 1, 1.5, 2, 2.5, 3], {1}, set(), 3),
        ([0, 1, 2, 3, 4, 5], {1, 2, 3, 4, 5}, set(), None),
        ([0, 1, 2, 3, 4, 5, 6], {6}, {1, 2, 3, 4}, None),
    ],
)
def test_silence_counts_only_while_somebody_listens(
    times: list[float], heard: set[float], deaf: set[float], aborted: float | None
) -> None:
    """Who is busy and does not read hears no pings."""
    connection = Watched(times, heard, deaf)
    with contextlib.suppress(RuntimeError):  # the times are over
        asyncio.run(end_if_silent(connection, KEEPALIVE))  # type: ignore[arg-type]
    assert connection.aborted == aborted


def test_unknown_paths_are_refused() -> None:
    async def scene() -> None:
        async with listening(echo) as address:
            with pytest.raises(StreamEnded, match="HTTP status 404"):
                await opened(address, "/test/Other")
            with pytest.raises(InvalidStatus):
                await connect(f"ws://{address}{METHOD}", proxy=None)

    asyncio.run(scene())


def test_there_is_room_for_so_many_connections_and_then_again() -> None:
    async def scene() -> None:
        async with listening(echo, most=1) as address:
            stream = await opened(address)
            with pytest.raises(StreamEnded):
                await opened(address)
            stream.cancel()
            while True:
                with contextlib.suppress(StreamEnded):
                    stream = await opened(address)
                    break
            await stream.write(b"x")
            assert await stream.read() == b"x"
            stream.cancel()

    asyncio.run(scene())


async def at_the_clients_port(driver: Any, *messages: Any) -> dict[str, Any]:
    """Say this to a server, and return the status with which it ends the stream."""
    port = ClientPort(driver, Sizes(PARAMETERS, 1), [Update], None, ClientLimits())
    async with (
        listening(port.attend, method=CLIENTS_CONNECT) as address,
        connect(f"ws://{address}{PREFIX}{CLIENTS_CONNECT}", proxy=None, max_size=None) as raw,
    ):
        with contextlib.suppress(ConnectionClosed):
            for message in messages:
                await raw.send(message)
            while not isinstance(data := await raw.recv(), str):
                pass
            return dict(json.loads(data))
        return {"code": raw.close_code}


HELLO = pb.Frame(hello=pb.Hello(protocol=PROTOCOL, client=0, size=1)).SerializeToString()


@pytest.mark.parametrize(
    ("messages", "code", "details"),
    [
        (["text"], "INVALID_ARGUMENT", "malformed: a text message"),
        ([b"\xff"], "INVALID_ARGUMENT", "malformed: "),
        ([HELLO, "text"], "INVALID_ARGUMENT", "malformed: a text message"),
        ([HELLO, b"\xff"], "INVALID_ARGUMENT", "malformed: "),
        ([HELLO, bytes(FRAME_LIMIT + 1)], "INVALID_ARGUMENT", "oversized: "),
    ],
)
def test_what_is_wrong_is_refused_as_over_grpc(tmp_path: Path, messages: list[Any], code: str, details: str) -> None:
    async def scene() -> None:
        driver = make_driver(tmp_path, min_clients=2)
        status = await at_the_clients_port(driver, *messages)
        assert status["code"] == code
        assert status["details"].startswith(details)
        assert driver.node.sessions == {}
        driver.close()

    asyncio.run(scene())


def test_a_message_beyond_all_limits_is_not_even_taken_in(tmp_path: Path) -> None:
    async def scene() -> None:
        driver = make_driver(tmp_path, min_clients=2)
        assert await at_the_clients_port(driver, HELLO, bytes(FRAME_LIMIT + (1 << 17))) == {"code": 1009}
        driver.close()

    asyncio.run(scene())
