"""Attacks on a server's ports by parties without a certificate, and what they cost its clients.

``python -m chaos.strangers [ATTACK ...]`` deploys one server and eight clients on loopback, with TLS. It measures the
clients' updates per second and the server's memory before and during each attack, and how many clients reconnect within
45 seconds when their process is restarted during it. Attackers reconnect whenever the server disconnects them.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import signal
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread

from spyker.config.scenario import load
from spyker.net.local_cluster import LocalCluster
from spyker.protocol.facts import UpdateApplied
from spyker.records import Follower
from spyker.tasks.registry import resolve

CLIENTS, PARAMETERS = 8, 21_840
WARM_UP, MEASURE, RECONNECT_SECONDS = 3.0, 6.0, 45.0
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS, CONTINUATION = 0, 1, 4, 9  # frame types of HTTP/2
END_HEADERS = 4
FRAME = 16_384


def http2_frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """Return a frame of HTTP/2."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def literal(name: bytes, value: bytes) -> bytes:
    """Return a header field of HPACK, not indexed and not compressed; both parts have less than 127 bytes."""
    return b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value


def request(method: str) -> bytes:
    """Return the header fields of a gRPC call."""
    fields = {":method": "POST", ":scheme": "https", ":path": method, ":authority": "x", "te": "trailers"}
    fields["content-type"] = "application/grpc"
    return b"".join(literal(name.encode(), value.encode()) for name, value in fields.items())


def idle(connection: ssl.SSLSocket) -> None:
    """Complete the TLS handshake and send nothing."""
    while connection.recv(1 << 16):
        pass


def header_flood(connection: ssl.SSLSocket) -> None:
    """Send header fields without end: one HEADERS frame, then CONTINUATION frames."""
    connection.sendall(PREFACE + http2_frame(SETTINGS, 0, 0, b""))
    connection.sendall(http2_frame(HEADERS, 0, 1, request("/spyker.Clients/Connect")))
    flood = http2_frame(CONTINUATION, 0, 1, literal(b"x" * 60, b"y" * 60) * (FRAME // 123)) * 16
    while True:
        connection.sendall(flood)


def large_frames(connection: ssl.SSLSocket) -> None:
    """Open a call and send 1 MB, all but the last byte, in place of Hello."""
    connection.sendall(PREFACE + http2_frame(SETTINGS, 0, 0, b""))
    connection.sendall(http2_frame(HEADERS, END_HEADERS, 1, request("/spyker.Clients/Connect")))
    size = 1 << 20
    body = b"\x00" + struct.pack(">I", size) + bytes(size - 1)
    for start in range(0, len(body), FRAME):
        connection.sendall(http2_frame(DATA, 0, 1, body[start : start + FRAME]))
    idle(connection)


Attack = Callable[[ssl.SSLSocket], None]
ATTACKS: dict[str, tuple[Attack, int]] = {
    "idle": (idle, 130),
    "header-flood": (header_flood, 12),
    "large-frames": (large_frames, 60),
}


def attack(behaviour: Attack, address: str, count: int, source: str = "127.0.0.1") -> list[Thread]:
    """Keep a number of connections to ``host:port`` open, each of which behaves as an attack says."""
    host, _, port = address.rpartition(":")
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])

    def one() -> None:
        while True:
            with (
                contextlib.suppress(OSError),
                socket.create_connection((host, int(port)), timeout=20, source_address=(source, 0)) as plain,
                context.wrap_socket(plain, server_hostname="localhost") as connection,
            ):
                behaviour(connection)
            time.sleep(0.01)

    threads = [Thread(target=one, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    return threads


class Measured:
    """A deployment under observation."""

    def __init__(self, folder: Path) -> None:
        overrides = {
            "algorithm": "spyker",
            "task.name": "benchmarks.idle:make",
            "task.parameters": PARAMETERS,
            "task.trivial": True,
            "world.regions": ["Paris"],
            "evaluation.interval": 1e6,
        }
        scenario = resolve(load(None, overrides, clients=CLIENTS))
        self.cluster = LocalCluster(scenario, folder, insecure=False, paced=False, duration=None)
        self.follower = Follower(self.cluster.record(0))

    def start(self) -> None:
        """Start the server and the clients."""
        self.cluster.start()
        deadline = time.monotonic() + 60
        while not self.updates():
            assert time.monotonic() < deadline, "the server did not start"
            time.sleep(0.1)

    def memory(self, field: str) -> float:
        """Return a field of the server's memory status in MB."""
        status = Path(f"/proc/{self.cluster.servers[0].pid}/status").read_text()
        found = re.search(rf"{field}:\s+(\d+)", status)
        assert found is not None
        return int(found[1]) / 1024

    def updates(self) -> list[tuple[float, int]]:
        """Return the times and clients of the updates since the last call."""
        return [(t, fact.client) for t, fact, _ in self.follower.poll() if isinstance(fact, UpdateApplied)]

    def rate(self) -> float:
        """Return the updates per second during a measurement."""
        self.updates()
        time.sleep(MEASURE)
        times = [t for t, _ in self.updates()]
        return (len(times) - 1) / (times[-1] - times[0]) if len(times) > 1 else 0.0

    def reconnected(self) -> tuple[int, float]:
        """Restart the clients' process; return how many clients come back, and after how many seconds the last."""
        process = self.cluster.clients.pop()
        process.send_signal(signal.SIGKILL)
        process.wait()
        time.sleep(WARM_UP)
        while self.updates():
            time.sleep(WARM_UP)
        began, seen, last = time.monotonic(), set[int](), 0.0
        self.cluster.clients.append(self.cluster.join(f"0-{CLIENTS - 1}", [self.cluster.addresses[0]]))
        while len(seen) < CLIENTS and time.monotonic() < began + RECONNECT_SECONDS:
            time.sleep(0.1)
            before, seen = len(seen), seen | {client for _, client in self.updates()}
            last = time.monotonic() - began if len(seen) > before else last
        return len(seen), last


def measure(name: str, source: str) -> str:
    """Measure an attack and describe the result in a line."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        measured = Measured(Path(folder))
        stack.enter_context(measured.cluster)
        measured.start()
        time.sleep(WARM_UP)
        before, memory = measured.rate(), measured.memory("VmRSS")
        address = measured.cluster.addresses[0]
        command = [sys.executable, "-m", "chaos.strangers", "--attack", name, address, "--source", source]
        attackers = subprocess.Popen(command)
        stack.callback(attackers.wait)
        stack.callback(attackers.kill)
        time.sleep(WARM_UP)
        during, peak = measured.rate(), measured.memory("VmHWM")
        clients, seconds = measured.reconnected()
        return (
            f"{name}: {before:,.0f} updates/s before, {during:,.0f} during ({during / before:.2f}); memory "
            f"{memory:.0f} MB before, peak {max(peak, measured.memory('VmHWM')):.0f} MB; "
            f"{clients} of {CLIENTS} clients reconnected within {seconds:.1f} s"
        )


def main() -> None:
    """Run attacks, or be the attackers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="ATTACK", help=", ".join(ATTACKS))
    parser.add_argument("--source", default="127.0.0.2", help="address from which the attackers connect")
    parser.add_argument("--attack", nargs=2, metavar=("ATTACK", "ADDRESS"), help="attack a port until killed")
    parser.add_argument("--count", type=int, help="number of the attackers' connections")
    args = parser.parse_args()
    if args.attack is not None:
        behaviour, count = ATTACKS[args.attack[0]]
        for thread in attack(behaviour, args.attack[1], args.count or count, args.source):
            thread.join()
    for name in args.names or ATTACKS if args.attack is None else ():
        print(measure(name, args.source), flush=True)


if __name__ == "__main__":
    main()
