"""Links between servers with a bandwidth: relays on loopback, one for each ordered pair."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence

PIECE = 1 << 14  # bytes; connections take turns


class Direction:
    """One direction of a link. All connections share its bandwidth, and wait for each other in turn."""

    def __init__(self, mbit: float) -> None:
        self.rate = mbit * 1e6 / 8
        self._lock = asyncio.Lock()

    async def pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass everything on, as fast as the link allows."""
        with contextlib.suppress(OSError):
            while data := await reader.read(PIECE):
                async with self._lock:
                    await asyncio.sleep(len(data) / self.rate)
                writer.write(data)
                await writer.drain()
        writer.close()


@contextlib.contextmanager
def slow_links(addresses: Sequence[str], mbit: float) -> Iterator[dict[tuple[int, int], str]]:
    """Relays from each server to each other one; yields their addresses by pair."""
    loop = asyncio.new_event_loop()
    pairs = [(i, j) for i in range(len(addresses)) for j in range(len(addresses)) if i != j]
    sockets = {pair: socket.create_server(("127.0.0.1", 0)) for pair in pairs}
    directions: dict[tuple[int, int], Direction] = {}

    async def serve() -> None:
        directions.update({pair: Direction(mbit) for pair in pairs})
        for i, j in pairs:
            await asyncio.start_server(relay(i, j), sock=sockets[i, j], limit=PIECE)

    def relay(i: int, j: int) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
        async def passed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            host, _, port = addresses[j].rpartition(":")
            try:
                there, back = await asyncio.open_connection(host, int(port), limit=PIECE)
            except OSError:
                writer.close()
                return
            await asyncio.gather(directions[i, j].pump(reader, back), directions[j, i].pump(there, writer))

        return passed

    loop.run_until_complete(serve())
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield {pair: f"127.0.0.1:{listening.getsockname()[1]}" for pair, listening in sockets.items()}
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
