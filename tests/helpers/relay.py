"""A forwarder of connections, so that they come from another loopback address."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator


@contextlib.asynccontextmanager
async def relay(address: str, source: str = "127.0.0.1", ended: asyncio.Queue[str] | None = None) -> AsyncIterator[str]:
    """Forward connections to ``host:port`` from the address ``source``, and yield the address to connect to.

    ``ended`` receives ``address`` when a connection has been closed.
    """
    host, _, port = address.rpartition(":")

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            others = await asyncio.open_connection(host, int(port), local_addr=(source, 0))

            async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                with contextlib.suppress(OSError):
                    while data := await reader.read(1 << 16):
                        writer.write(data)
                        await writer.drain()
                writer.close()

            await asyncio.gather(copy(reader, others[1]), copy(others[0], writer))
            if ended is not None:
                ended.put_nowait(address)

    server = await asyncio.start_server(forward, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
