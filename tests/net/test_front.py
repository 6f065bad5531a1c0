"""The process in front of a shared port."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from spyker.errors import DeploymentError
from spyker.net.connection_limits import AUTHENTICATION_BYTES, FLOOD, AuthenticatedPeers
from spyker.net.first_bytes import CLIENTS, WEBSOCKET
from spyker.net.front import FrontProcess
from spyker.net.peer_address import socket_name

GRPC = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HTTP = b"GET / HTTP/1.1\r\n\r\n"


@contextlib.asynccontextmanager
async def in_front(
    folder: Path, most: int = 100, *, authenticate: bool = True
) -> AsyncIterator[tuple[FrontProcess, int]]:
    """A front before two listeners, which send their name and then what they receive."""
    authenticated = AuthenticatedPeers()
    async with contextlib.AsyncExitStack() as stack:
        for service in (CLIENTS, WEBSOCKET):

            async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, name: str = service) -> None:
                with contextlib.ExitStack() as stack:
                    if authenticate:
                        stack.enter_context(authenticated.streaming(socket_name(writer.get_extra_info("peername"))))
                    writer.write(f"{name}\n".encode())
                    while data := await reader.read(1 << 16):
                        writer.write(data)
                        await writer.drain()
                    writer.close()

            server = await asyncio.start_unix_server(answer, folder / service)
            stack.push_async_callback(server.wait_closed)
            stack.callback(server.close)
        front = FrontProcess(socket.create_server(("127.0.0.1", 0)))
        await front.start({service: folder / service for service in (CLIENTS, WEBSOCKET)}, most, authenticated, print)
        try:
            async with asyncio.timeout(60):
                yield front, front.port
        finally:
            await front.stop()


def test_connections_are_forwarded_by_their_first_bytes(tmp_path: Path) -> None:
    async def scene() -> None:
        async with in_front(tmp_path) as (_, port):
            for first, service in ((GRPC, CLIENTS), (HTTP, WEBSOCKET)):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(first[:2])
                await writer.drain()
                writer.write(first[2:])
                assert await reader.readline() == f"{service}\n".encode()
                assert await reader.readexactly(len(first)) == first
                writer.close()

    asyncio.run(scene())


def test_much_data_arrives_whole_in_both_directions(tmp_path: Path) -> None:
    data = GRPC + bytes(range(256)) * (1 << 16)  # 16 MB, more than all buffers together

    async def scene() -> None:
        async with in_front(tmp_path) as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(GRPC)
            assert await reader.readline() == b"clients\n"
            writer.write(data[len(GRPC) :])
            assert await reader.readexactly(len(data)) == data
            writer.close()

    asyncio.run(scene())


def test_what_is_neither_tls_nor_http_is_closed(tmp_path: Path) -> None:
    async def scene() -> None:
        async with in_front(tmp_path) as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"SSH-2.0-x\r\n")
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
            writer.close()

    asyncio.run(scene())


def test_there_is_room_for_so_many_connections(tmp_path: Path) -> None:
    async def scene() -> None:
        async with in_front(tmp_path, most=1) as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(GRPC)
            assert await reader.readline() == b"clients\n"
            second, more = await asyncio.open_connection("127.0.0.1", port)
            with contextlib.suppress(ConnectionError):
                assert await second.read() == b""
            more.close()
            writer.close()

    asyncio.run(scene())


def test_a_signal_to_the_whole_unit_does_not_end_it_before_its_server(tmp_path: Path) -> None:
    async def scene() -> None:
        async with in_front(tmp_path) as (front, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(GRPC)
            assert await reader.readline() == b"clients\n"
            front._process.send_signal(signal.SIGTERM)
            front._process.send_signal(signal.SIGINT)
            writer.write(b"more\n")
            assert await reader.readexactly(len(GRPC) + 5) == GRPC + b"more\n"
            writer.close()

    asyncio.run(scene())


def test_its_end_is_an_error(tmp_path: Path) -> None:
    async def scene() -> None:
        async with in_front(tmp_path) as (front, _):
            front._process.kill()
            with pytest.raises(DeploymentError, match="exit code -9"):
                await front.watch()

    asyncio.run(scene())


def test_much_data_of_strangers_ends_the_connection_and_bans_their_network(tmp_path: Path) -> None:
    async def scene() -> None:
        async with in_front(tmp_path, authenticate=False) as (front, port):
            closed: asyncio.Future[tuple[str, str]] = asyncio.get_running_loop().create_future()
            front._report = lambda reason, peer: closed.set_result((reason, peer)) if not closed.done() else None
            watch = asyncio.create_task(front.watch())
            reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0))
            peer = f"ipv4:127.0.0.2:{writer.get_extra_info('sockname')[1]}"
            writer.write(GRPC + bytes(AUTHENTICATION_BYTES))
            assert await closed == (FLOOD, peer)
            with contextlib.suppress(ConnectionError):
                while await reader.read(1 << 16):
                    pass
            await until_banned(port, "127.0.0.2")
            _, other = await asyncio.open_connection("127.0.0.1", port)
            other.close()
            watch.cancel()

    asyncio.run(scene())


async def until_banned(port: int, source: str) -> None:
    """Wait until the kernel drops packets from an address."""
    while True:
        try:
            async with asyncio.timeout(0.3):
                _, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
            writer.close()
        except TimeoutError:
            return
