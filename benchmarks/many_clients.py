"""One deployed server, on one core, with 1,000 clients that each send one update of 87 kB per second.

The clients are light: a stream over TLS and a connection each, several hundred per process, with the handshake of real
clients and an update that was made in advance, one second after the last one. They train nothing and check nothing.
They run on the remaining cores, so ``client_cores`` near the number of these cores means that the clients were the
limit and not the server. The time to an answer is from an update's first byte until the next model is complete.

As a program it is one process of clients, started by the benchmark:
``python -m benchmarks.many_clients FOLDER PORT FIRST COUNT LAYOUT LEARNING SECONDS``.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import grpc.aio
import numpy as np

from benchmarks.deploy import scratch, wait_until_listening
from benchmarks.measure import Result
from benchmarks.processor_time import processor_time
from spyker.config.scenario import load
from spyker.net import spyker_pb2 as pb
from spyker.net.channels import CLIENTS_CONNECT, channel, open_stream
from spyker.net.client_identity import answer_challenge, load_identity
from spyker.net.frames import PROTOCOL, split, with_chunk
from spyker.net.local_cluster import LocalCluster
from spyker.net.server_config import learning_digest
from spyker.net.streams import read_body, read_frame
from spyker.protocol.messages import Update
from spyker.records import Follower
from spyker.tasks.registry import resolve, task_spec
from spyker.tasks.served_model import ServedModel

PARAMETERS, CLIENTS, PROCESSES, PERIOD = 21_840, 1_000, 2, 1.0
RAMP, SECONDS = 10.0, 20.0  # until the measurement begins, once all clients are connected; its length
KEEPALIVE = 120.0
ALGORITHMS = ("spyker", "stride")
CONNECTING = 8  # clients of a process at a time
BAR = 0.98  # of one update per client and second


def measure() -> list[Result]:
    return [measure_algorithm(algorithm) for algorithm in ALGORITHMS]


def measure_algorithm(algorithm: str, clients: int = CLIENTS) -> Result:
    overrides = {
        "algorithm": algorithm,
        "task.name": "benchmarks.idle:make",
        "task.parameters": PARAMETERS,
        "task.trivial": True,
        "world.regions": ["Paris"],
        "evaluation.interval": 1e6,
    }
    scenario = resolve(load(None, overrides, clients=clients))
    layout = ServedModel.of(task_spec(scenario).make()).spec.digest.hex()
    everywhere = sorted(os.sched_getaffinity(0))
    with scratch() as folder, LocalCluster(scenario, folder, insecure=False, paced=False, duration=None) as local:
        with pinned(everywhere[:1]):
            local.servers.append(local.serve(0))
        port = local.addresses[0].rpartition(":")[2]
        wait_until_listening(int(port), local.servers[0])
        command = [sys.executable, "-m", "benchmarks.many_clients", str(folder), port]
        digests = [layout, learning_digest(scenario).hex(), str(RAMP + SECONDS)]
        with pinned(everywhere[1:] or everywhere):
            each = clients // PROCESSES
            crowd = [
                subprocess.Popen([*command, str(i * each), str(each), *digests], stdout=subprocess.PIPE, text=True)
                for i in range(PROCESSES)
            ]
        try:
            follower = Follower(local.record(0))
            while not updates(follower):
                if any(process.poll() is not None for process in (*local.servers, *crowd)):
                    raise RuntimeError("a process has ended early")
                time.sleep(0.1)
            time.sleep(RAMP)
            processes = [local.servers[0].pid, *(process.pid for process in crowd)]
            updates(follower)
            before, began = [processor_time(process)[1] for process in processes], time.perf_counter()
            time.sleep(SECONDS)
            count, seconds = updates(follower), time.perf_counter() - began
            server, *loads = [
                (after - at) / seconds
                for after, at in zip((processor_time(process)[1] for process in processes), before, strict=True)
            ]
            status = Path(f"/proc/{processes[0]}/status").read_text()
            answers = sorted(a for process in crowd for a in json.loads(process.communicate()[0]))
        finally:
            for process in crowd:
                process.kill()
                process.wait()
    details = {
        "updates_per_s": count / seconds,
        "answer_p50_ms": 1e3 * statistics.median(answers),
        "answer_p99_ms": 1e3 * answers[int(0.99 * len(answers))],
        "server_cores": server,
        "client_cores": sum(loads),
        "server_mb": int(status.partition("VmRSS:")[2].split()[0]) / 1e3,
        "load_average": os.getloadavg()[0],
    }
    name = f"{clients:,} clients of one server on one core, {algorithm}: updates / updates asked for"
    return Result(name, count / seconds / (clients / PERIOD), BAR, details=details)


@contextmanager
def pinned(cores: list[int]) -> Iterator[None]:
    """Start processes on these cores within the context."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def updates(follower: Follower) -> int:
    """Return the number of updates since the last call."""
    return sum(fact.kind == "update" for _, fact, _ in follower.poll())


# --- The clients -----------------------------------------------------------------------------------------------------


async def attend(
    folder: Path, port: int, first: int, count: int, layout: bytes, learning: bytes, seconds: float
) -> None:
    """Connect the clients, let them send updates, and print the times to their answers."""
    credentials = grpc.ssl_channel_credentials((folder / "certs" / "ca.pem").read_bytes())
    chunk = np.full(PARAMETERS, 1e-3, np.float32).data.cast("B")
    connecting, answers = asyncio.Semaphore(CONNECTING), list[float]()
    all_started = asyncio.Event()
    started = 0

    async def model(stream: grpc.aio.StreamStreamCall) -> bytes:
        """Wait for the next model, and return its token."""
        token, left = b"", 4 * PARAMETERS
        while left > 0:
            piece, frame = split(await read_frame(stream))
            if frame is not None and frame.WhichOneof("body") == "assignment":
                token = frame.assignment.task_token
            left -= len(piece) if piece is not None else 0
        return token

    async def client(k: int) -> None:
        nonlocal started
        identity = load_identity(folder / "certs" / f"client-{k}", k)
        async with channel(f"localhost:{port}", KEEPALIVE, credentials) as connection:
            async with connecting:
                stream = open_stream(connection, CLIENTS_CONNECT)
                challenge = await read_body(stream, "challenge")
                hello = pb.Hello(protocol=PROTOCOL, client=k, size=1, layout=layout, learning=learning)
                answer_challenge(hello, challenge, identity, 0)
                await stream.write(pb.Frame(hello=hello).SerializeToString())
                await read_body(stream, "welcome")
            token = await model(stream)
            started += 1
            if started == count:
                all_started.set()
            await all_started.wait()
            loop = asyncio.get_running_loop()
            begin = loop.time() + RAMP
            due = loop.time() + PERIOD * (k - first) / count  # spread over the first period
            while due < begin + seconds - RAMP:
                await asyncio.sleep(due - loop.time())
                sent = loop.time()
                body = pb.Frame(update=pb.Update(task_token=token, content=pb.Content(kind=Update.kind, fields=b"{}")))
                await stream.write(with_chunk(chunk, body.SerializeToString()))
                token = await model(stream)
                if sent >= begin:
                    answers.append(loop.time() - sent)
                due = max(due + PERIOD, loop.time())
            stream.cancel()

    await asyncio.gather(*(client(k) for k in range(first, first + count)))
    print(json.dumps(answers))


if __name__ == "__main__":
    folder, port, first, count, layout, learning, seconds = sys.argv[1:]
    asyncio.run(
        attend(
            Path(folder), int(port), int(first), int(count), bytes.fromhex(layout), bytes.fromhex(learning),
            float(seconds),
        )
    )  # fmt: skip
