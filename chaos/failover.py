"""Measure how long a client of real processes needs to work with another server after it has lost its own.

    python -m chaos.failover [--how kill|stop|cut] [--trials N]

Two servers and one client, over relays. ``kill`` sends SIGKILL to the client's server, ``stop`` SIGSTOP, and ``cut``
lets nothing pass between the client and its server. A trial ends when the other server welcomes the client. Then the
first server comes back, and the next trial takes the other one.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import signal
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import TracebackType

from chaos.server_kills import scenario_table
from chaos.waiting import applying, listening, waiting
from spyker.config.scenario import from_table
from spyker.net.local_cluster import LocalCluster
from spyker.tasks.registry import resolve

KINDS = ("kill", "stop", "cut")


class Relay:
    """Another address for a port, further away, through which nothing passes while it is cut."""

    def __init__(self, address: str, delay: float = 0.0) -> None:
        """``delay`` is in seconds, one way."""
        self._delay = delay
        self._host, _, port = address.rpartition(":")
        self._port = int(port)
        self._loop = asyncio.new_event_loop()
        self._passing = asyncio.Event()
        self._passing.set()
        server = self._loop.run_until_complete(asyncio.start_server(self._accept, "127.0.0.1", 0))
        self.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def __enter__(self) -> Relay:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in asyncio.all_tasks(self._loop):
            self._loop.call_soon_threadsafe(task.cancel)
        self._loop.call_soon_threadsafe(self._loop.call_later, 0.05, self._loop.stop)
        self._thread.join()

    def cut(self) -> None:
        """Let nothing pass; connections stay open."""
        self._loop.call_soon_threadsafe(self._passing.clear)

    def heal(self) -> None:
        """Let everything pass again."""
        self._loop.call_soon_threadsafe(self._passing.set)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._passing.wait()
        try:
            there = await asyncio.open_connection(self._host, self._port)
        except OSError:
            writer.close()
            return
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(self._pass(reader, there[1]), self._pass(there[0], writer))

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                await asyncio.sleep(self._delay)
                await self._passing.wait()
                writer.write(data)
        writer.close()


def attended(cluster: LocalCluster) -> list[tuple[float, int]]:
    """Return when, in seconds since 1970, the client was welcomed by which server."""
    path = cluster.folder / "clients-0-0.log"
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    entries = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
    return [(entry["time"], entry["server"]) for entry in entries if entry["event"] == "attending"]


def failover_times(folder: Path, how: str, trials: int, delay_ms: float = 20.0) -> list[float]:
    """Return, for each trial, the seconds from the fault until another server has welcomed the client."""
    scenario = resolve(from_table(scenario_table("spyker", 2, 1, delay_ms)))
    times = []
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(
            LocalCluster(scenario, folder, insecure=True, paced=True, duration=None, min_clients=0)
        )
        relays = [stack.enter_context(Relay(address)) for address in cluster.addresses]
        for i in (0, 1):
            cluster.servers.append(cluster.serve(i))
        starts = [1, 1]
        for i in (0, 1):
            listening(cluster, i, 1)
        more = ("--state", str(folder / "client"), "--return-after", "100000")
        cluster.clients.append(cluster.join("0-0", [relay.address for relay in relays], *more))
        waiting(lambda: bool(attended(cluster)), "the client has not come")
        for _ in range(trials):
            before = attended(cluster)
            home = before[-1][1]
            applying(cluster, home, 20)
            began = time.time()
            if how == "cut":
                relays[home].cut()
            else:
                cluster.servers[home].send_signal(signal.SIGKILL if how == "kill" else signal.SIGSTOP)
            waiting(lambda lost=home: attended(cluster)[-1][1] != lost, "the client does not turn to the other server")
            times.append(attended(cluster)[-1][0] - began)
            if how == "kill":
                cluster.servers[home].wait()
                starts[home] += 1
                cluster.servers[home] = cluster.serve(home, "--resume")
                listening(cluster, home, starts[home])
            elif how == "stop":
                cluster.servers[home].send_signal(signal.SIGCONT)
            relays[home].heal()
    return times


def main(argv: list[str]) -> int:
    """Measure failovers and print their distribution."""
    parser = argparse.ArgumentParser(prog="python -m chaos.failover", description=__doc__.split("\n")[0])
    parser.add_argument("--how", choices=KINDS, action="append", help="may be repeated; default: all")
    parser.add_argument("--trials", type=int, default=10)
    args = parser.parse_args(argv)
    for how in args.how or KINDS:
        with tempfile.TemporaryDirectory(prefix="spyker-failover-") as folder:
            times = sorted(failover_times(Path(folder), how, args.trials))
        print(
            f"{how}: median {statistics.median(times):.1f} s, least {times[0]:.1f} s, most {times[-1]:.1f} s: "
            + " ".join(f"{t:.1f}" for t in times),
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
