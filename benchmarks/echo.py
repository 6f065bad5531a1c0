"""A bare grpc.aio echo: what a server could do at most if all it did were to take models and to send them back.

As a program it is one side of the echo, with no Spyker in it: ``python -m benchmarks.echo server FOLDER BYTES`` listens
and prints its port; ``python -m benchmarks.echo clients FOLDER PORT CLIENTS BYTES SECONDS`` prints echoes per second. A
message is cut into pieces of 1 MB, and goes back once it is whole, as a model does. FOLDER has the server's
certificate.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

METHOD = "/benchmarks.Echo/Attend"
PIECE = 1 << 20
WARM_UP = 0.2  # share of the time


class Handler(grpc.GenericRpcHandler):
    def __init__(self, size: int) -> None:
        self.size = size

    def service(self, details: Any) -> Any:
        return grpc.stream_stream_rpc_method_handler(self.attend) if details.method == METHOD else None

    async def attend(self, _: Any, context: Any) -> None:
        while True:
            pieces, left = [], self.size
            while left > 0:
                data = await context.read()
                if data is grpc.aio.EOF:
                    return
                pieces.append(data)
                left -= len(data)
            for piece in pieces:
                await context.write(piece)


async def serve(folder: Path, size: int) -> None:
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((Handler(size),))
    key, chain = (folder / "key.pem").read_bytes(), (folder / "cert.pem").read_bytes()
    port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([(key, chain)]))
    await server.start()
    print(port, flush=True)
    await server.wait_for_termination()


async def attend(folder: Path, port: int, clients: int, size: int, seconds: float) -> None:
    credentials = grpc.ssl_channel_credentials((folder / "ca.pem").read_bytes())
    ended: list[float] = []
    deadline = time.perf_counter() + seconds

    async def client() -> None:
        # one connection each, like clients on different machines
        options = [("grpc.use_local_subchannel_pool", 1)]
        async with grpc.aio.secure_channel(f"localhost:{port}", credentials, options) as channel:
            stream = channel.stream_stream(METHOD)()
            pieces = [bytes(min(PIECE, size - start)) for start in range(0, size, PIECE)]
            while time.perf_counter() < deadline or len(ended) < 5 * clients:
                for piece in pieces:
                    await stream.write(piece)
                left = size
                while left > 0:
                    left -= len(await stream.read())
                ended.append(time.perf_counter())
            stream.cancel()

    await asyncio.gather(*(client() for _ in range(clients)))
    first = max(clients, int(WARM_UP * len(ended)))
    ended.sort()
    print((len(ended) - 1 - first) / (ended[-1] - ended[first]))


if __name__ == "__main__":
    match sys.argv[1:]:
        case "server", folder, size:
            asyncio.run(serve(Path(folder), int(size)))
        case "clients", folder, port, clients, size, seconds:
            asyncio.run(attend(Path(folder), int(port), int(clients), int(size), float(seconds)))
