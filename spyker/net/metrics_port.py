"""The HTTP port for Prometheus: one short request per connection, with limits on time, size and connections."""

from __future__ import annotations

import asyncio
import socket
from threading import Event, Thread

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

REQUEST_SECONDS = 5.0  # from the connection to its end
MOST_CONNECTIONS = 8  # the oldest is closed when there is one more
MOST_BYTES = 1 << 13  # of a request


class MetricsPort:
    """Answers ``GET`` with the metrics of a registry, in a thread."""

    def __init__(self, registry: CollectorRegistry, host: str, port: int) -> None:
        """Listen at once.

        Raises:
            OSError: the address cannot be used.

        """
        self._registry = registry
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listening = socket.create_server((host.strip("[]"), port), family=family)
        self.port = int(self._listening.getsockname()[1])
        self._open: dict[asyncio.StreamWriter, None] = {}  # in the order of their arrival
        self._started = Event()
        self._thread = Thread(target=lambda: asyncio.run(self._serve()), name="metrics", daemon=True)
        self._thread.start()
        self._started.wait()

    def close(self) -> None:
        """Close the port."""
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join()

    async def _serve(self) -> None:
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._attend, sock=self._listening, limit=MOST_BYTES)
        self._started.set()
        await self._ended.wait()
        server.close()
        for writer in self._open:
            writer.transport.abort()

    async def _attend(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open[writer] = None
        if len(self._open) > MOST_CONNECTIONS:
            oldest = next(iter(self._open))
            del self._open[oldest]  # at once, so that the next one closes another
            oldest.transport.abort()
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                request = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._answer(request.decode("latin-1")))
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (OSError, EOFError, TimeoutError, asyncio.LimitOverrunError):
            writer.transport.abort()
        finally:
            self._open.pop(writer, None)

    def _answer(self, request: str) -> bytes:
        method, _, rest = request.partition(" ")
        if method != "GET":
            return b"HTTP/1.1 405 Method Not Allowed\r\nAllow: GET\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        headers = dict(line.lower().split(": ", 1) for line in rest.splitlines() if ": " in line)
        encode, kind = choose_encoder(headers.get("accept", ""))
        body = encode(self._registry)
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        return head.encode("latin-1") + body
