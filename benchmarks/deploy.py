"""Client updates per second of one deployed server, over a bare gRPC echo of the same bytes and over Flower's server.

All three sides are a server process and a process with all clients, on loopback, with TLS and the same certificate, and
nobody trains: a client answers with what it received. Spyker's server does all that it does by default: it checks
every answer, mixes it in, records it and saves checkpoints. The echo takes a message in pieces of 1 MB and, when it is
whole, sends it back. Flower's is its gRPC server with FedAvg over all clients. Each side leaves out its start.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from benchmarks.flower import environment
from benchmarks.measure import RESULTS, Result, in_turn
from spyker.config.scenario import load
from spyker.net.certificate_issuing import make_deployment
from spyker.net.local_cluster import LocalCluster
from spyker.records import RunRecord
from spyker.tasks.registry import resolve

WARM_UP = 0.2  # share of the time
# parameters: (name, clients, seconds, rounds of Flower, bar over the echo, bar over Flower)
SIZES = {
    21_840: ("87 kB", 8, 8.0, 100, 0.6, 3.0),
    5_500_000: ("22 MB", 4, 12.0, 6, 0.8, 3.0),
    100_000_000: ("400 MB", 2, 30.0, 2, 0.8, 3.0),
}
TIMES, FLOWER_TIMES = 3, 1
PATIENCE = 150.0  # timeout of Flower's rounds; a slower server counts as if it had finished then


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """Yield a temporary folder on the disk of the results, because checkpoints may be large."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=RESULTS, prefix="deploy-") as folder:
        yield Path(folder)


def spyker_rate(
    parameters: int, clients: int, seconds: float, settings: Mapping[str, object] = MappingProxyType({})
) -> float:
    """Return the rate of ``spyker serve``, from the update facts in its record."""
    overrides: dict[str, Any] = {
        "algorithm": "spyker",
        "task.name": "benchmarks.idle:make",
        "task.parameters": parameters,
        "task.trivial": True,
        "world.regions": ["Paris"],
        "evaluation.interval": 1e6,
        **settings,
    }
    scenario = resolve(load(None, overrides, clients=clients))
    with scratch() as folder, LocalCluster(scenario, folder, insecure=False, paced=False, duration=seconds) as local:
        local.start()
        local.watch(lambda t, fact: None, lambda: False)
        times = [stated.t for stated in RunRecord(local.record(0)).updates()]
    return rate(times, clients)


def rate(times: list[float], clients: int) -> float:
    """Return the updates per second without the warm-up, which contains at least each client's first update."""
    first = max(clients, int(WARM_UP * len(times)))
    if len(times) < first + 2:
        raise RuntimeError(f"only {len(times)} updates of {clients} clients: too few for a rate")
    return (len(times) - 1 - first) / (times[-1] - times[first])


def echo_rate(parameters: int, clients: int, seconds: float) -> float:
    """Return the rate of the bare echo."""
    size = 4 * parameters
    program = [sys.executable, "-m", "benchmarks.echo"]
    with scratch() as folder, ended(certified(folder), [*program, "server", folder, size]) as server:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        done = subprocess.run(
            [*map(str, [*program, "clients", folder, port, clients, size, seconds])],
            check=True, stdout=subprocess.PIPE, timeout=PATIENCE,
        )  # fmt: skip
    return float(done.stdout)


def flower_rate(parameters: int, clients: int, rounds: int) -> float:
    """Return the rate of Flower's server."""
    program = [environment(), Path(__file__).with_name("flower_server.py")]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with contextlib.ExitStack() as stack:
        folder = certified(stack.enter_context(scratch()))
        server = stack.enter_context(ended(folder, [*program, "server", folder, port, clients, parameters, rounds]))
        wait_until_listening(port, server)  # Flower's clients do not retry
        stack.enter_context(ended(folder, [*program, "clients", folder, port, clients]))
        try:
            words, _ = server.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            return clients * rounds / PATIENCE
    return float(words.rpartition(b":")[2])


def wait_until_listening(port: int, server: subprocess.Popen[bytes]) -> None:
    """Wait until a server listens on the port."""
    deadline = time.monotonic() + PATIENCE
    while server.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.1)
    raise RuntimeError("the server does not listen")


def certified(folder: Path) -> Path:
    """Create a server's certificate in a folder."""
    make_deployment(folder / "certs", 1, 0)
    for name in ("ca.pem", "cert.pem", "key.pem"):
        (folder / name).write_bytes((folder / "certs" / "server-0" / name).read_bytes())
    return folder


@contextlib.contextmanager
def ended(folder: Path, command: list[Any]) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process within the context; its standard error is in the folder."""
    with (folder / "errors.log").open("ab") as log:
        process = subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE, stderr=log)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def measure() -> list[Result]:
    environment()
    results = []
    for parameters, (name, clients, seconds, rounds, over_echo, over_flower) in SIZES.items():

        def ours(parameters: int = parameters, clients: int = clients, seconds: float = seconds) -> float:
            return spyker_rate(parameters, clients, seconds)

        def echo(parameters: int = parameters, clients: int = clients, seconds: float = seconds) -> float:
            return echo_rate(parameters, clients, seconds)

        def flower(parameters: int = parameters, clients: int = clients, rounds: int = rounds) -> float:
            return flower_rate(parameters, clients, rounds)

        details = {"clients": float(clients)}
        us, them = in_turn(ours, echo, TIMES)
        rates = {"spyker_updates_per_s": us, "echo_updates_per_s": them}
        results.append(Result(f"deployed server / bare echo, {name}", us / them, over_echo, details=details | rates))
        us, them = in_turn(ours, flower, FLOWER_TIMES)
        rates = {"spyker_updates_per_s": us, "flower_updates_per_s": them}
        results.append(Result(f"deployed server / Flower, {name}", us / them, over_flower, details=details | rates))
    return results
