"""Processor time of a bare echo over other transports than gRPC: what a server could gain by changing its transport.

``python -m benchmarks.bare_transports`` prints microseconds per echo of the server's and the clients' process, in turn
for ``benchmarks/echo.py`` (gRPC), for TLS by ``asyncio`` with a length before each message, and for the ``websockets``
library. The last two are repeated on uvloop if it is installed. All use TLS with the same certificate.
"""

from __future__ import annotations

import asyncio
import importlib.util
import ssl
import statistics
import subprocess
import sys
import time
from pathlib import Path

from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve

from benchmarks.deploy import certified, ended, scratch
from benchmarks.echo import PIECE
from benchmarks.processor_time import processor_time

SIZE, CLIENTS, SECONDS, REST, TIMES = 87_360, 8, 3.0, 4.0, 3
HEAD = 4  # bytes of a message's length
BUSY = 0.2  # seconds of the server's processor time until the measurement begins
PLAIN = {"compression": None, "max_size": 2 * PIECE, "max_queue": (1, 0), "write_limit": PIECE}


async def copy_back(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = await reader.readexactly(HEAD)
            body = await reader.readexactly(int.from_bytes(head, "big"))
            writer.writelines((head, body))
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def send_back(connection: ServerConnection) -> None:
    async for message in connection:
        await connection.send(message)


async def listen(transport: str, folder: Path) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    if transport == "tls":
        server = await asyncio.start_server(copy_back, "127.0.0.1", 0, ssl=tls, limit=2 * PIECE)
    else:
        server = await serve(send_back, "127.0.0.1", 0, ssl=tls, **PLAIN)  # type: ignore[assignment, arg-type]
    print(next(iter(server.sockets)).getsockname()[1], flush=True)
    await asyncio.Event().wait()


async def attend(transport: str, folder: Path, port: int, seconds: float) -> None:
    tls = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    deadline, message, count = time.perf_counter() + seconds, bytes(SIZE), 0

    async def over_tls() -> None:
        nonlocal count
        reader, writer = await asyncio.open_connection("localhost", port, ssl=tls, limit=2 * PIECE)
        while time.perf_counter() < deadline:
            writer.writelines((SIZE.to_bytes(HEAD, "big"), message))
            await writer.drain()
            await reader.readexactly(HEAD + SIZE)
            count += 1
        writer.close()

    async def over_websocket() -> None:
        nonlocal count
        async with connect(f"wss://localhost:{port}", ssl=tls, **PLAIN) as connection:  # type: ignore[arg-type]
            while time.perf_counter() < deadline:
                await connection.send(message)
                await connection.recv()
                count += 1

    began = time.perf_counter()
    await asyncio.gather(*((over_tls if transport == "tls" else over_websocket)() for _ in range(CLIENTS)))
    print(count / (time.perf_counter() - began))


def measure(transport: str, loop: str) -> list[float]:
    """Return echoes per second, and microseconds per echo of the main thread and of all threads of both processes."""
    seconds = str(SECONDS + REST)
    if transport == "grpc":
        program = [sys.executable, "-m", "benchmarks.echo"]
        with scratch() as folder:
            certified(folder)
            listening = [*program, "server", str(folder), str(SIZE)]
            calling = [*program, "clients", str(folder), "PORT", str(CLIENTS), str(SIZE), seconds]
            return measured(folder, listening, calling)
    program = [sys.executable, "-m", "benchmarks.bare_transports", loop, transport]
    with scratch() as folder:
        certified(folder)
        return measured(folder, [*program, str(folder)], [*program, str(folder), "PORT", seconds])


def measured(folder: Path, listening: list[str], calling: list[str]) -> list[float]:
    with ended(folder, listening) as server:
        assert server.stdout is not None
        port = server.stdout.readline().decode().strip()
        idle = processor_time(server.pid)[1]
        command = [port if word == "PORT" else word for word in calling]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as clients:
            while processor_time(server.pid)[1] < idle + BUSY:
                time.sleep(0.05)  # the clients may take long to start
            before = [processor_time(process) for process in (server.pid, clients.pid)]
            time.sleep(SECONDS)
            after = [processor_time(process) for process in (server.pid, clients.pid)]
            assert clients.stdout is not None
            rate = float(clients.stdout.read())
    pairs = zip(before, after, strict=True)
    return [rate, *((b - a) / (rate * SECONDS) * 1e6 for old, new in pairs for a, b in zip(old, new, strict=True))]


def main() -> None:
    loops = ["asyncio"] + (["uvloop"] if importlib.util.find_spec("uvloop") else [])
    kinds = [("grpc", "asyncio"), *((transport, loop) for transport in ("tls", "websockets") for loop in loops)]
    found: dict[tuple[str, str], list[list[float]]] = {kind: [] for kind in kinds}
    for _ in range(TIMES):
        for kind in kinds:
            found[kind].append(measure(*kind))
    for (transport, loop), rows in found.items():
        rate, server, server_all, clients, clients_all = (
            statistics.median(column) for column in zip(*rows, strict=True)
        )
        print(
            f"{transport} on {loop}: {rate:,.0f} echoes/s; server {server:.0f} µs of the main thread, {server_all:.0f} "
            f"µs of all threads; clients {clients:.0f} and {clients_all:.0f} µs"
        )


if __name__ == "__main__":
    match sys.argv[1:]:
        case []:
            main()
        case loop, transport, *rest:
            if loop == "uvloop":
                import uvloop

                run = uvloop.run
            else:
                run = asyncio.run
            if len(rest) == 1:
                run(listen(transport, Path(rest[0])))
            else:
                run(attend(transport, Path(rest[0]), int(rest[1]), float(rest[2])))
