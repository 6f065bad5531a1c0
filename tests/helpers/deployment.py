"""Real server and client processes over TLS, and a client that says whatever a test wants it to say."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import time
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import grpc.aio
import numpy as np
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from spyker.config.scenario import from_table
from spyker.net import spyker_pb2 as pb
from spyker.net.channels import CLIENTS_CONNECT, channel, open_stream
from spyker.net.client_identity import ClientIdentity, answer_challenge, load_identity
from spyker.net.frames import PROTOCOL, send, split
from spyker.net.local_cluster import LocalCluster, free_ports
from spyker.net.server_config import learning_digest
from spyker.net.wire import fill
from spyker.node.client_certificate import certified_client
from spyker.node.task_tokens import CONTENT, TaskToken
from spyker.protocol.messages import Update
from spyker.records import RecordedFact, RecordError, RunRecord, RunStarted
from spyker.tasks.layout import layout_digest
from spyker.tasks.registry import resolve, task_spec

DEADLINE = 200.0
"""Seconds. The import of PyTorch alone may take half a minute on a machine with much else to do."""


def table(algorithm: str = "fedasync", clients: tuple[int, ...] = (3,), **more: Any) -> dict[str, Any]:
    """A scenario of the quadratic task, which needs no PyTorch, whose clients answer after 10 ms."""
    regions = [f"region-{i}" for i in range(len(clients))]
    return {
        "algorithm": algorithm,
        "duration": 3.0,
        "task": {"name": "quadratic", "dimension": 8},
        "world": {"regions": regions, "clients": list(clients), "latency-ms": [[1.0] * len(clients)] * len(clients)},
        "training": {"rate": 0.5, "delay-ms": [10.0] * sum(clients)},
        "evaluation": {"interval": 0.25},
        "spyker": {"h-intra": 30.0, "h-inter": 20.0},
    } | more


def until(condition: Callable[[], Any], seconds: float = DEADLINE) -> Any:
    """Wait until a condition holds, and return what it returned."""
    deadline = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.03)
    return result


def as_table(stated: RecordedFact[Any]) -> dict[str, Any]:
    """A fact as the line of a record has it."""
    return {"t": stated.t, "kind": stated.fact.kind, **asdict(stated.fact), "queue": stated.queue}


class Deployed(LocalCluster):
    """A deployment whose logs, facts and metrics a test can read."""

    def __init__(self, scenario: dict[str, Any], folder: Path, *, duration: float | None = None, **deploy: Any) -> None:
        self.metrics_port = free_ports(1)[0]
        deploy = {"metrics": f"127.0.0.1:{self.metrics_port}", "min_clients": 1} | deploy
        resolved = resolve(from_table(scenario))
        if len(resolved.world.regions) > 1:
            deploy.pop("metrics")
        super().__init__(resolved, folder, insecure=False, paced=True, duration=duration, **deploy)

    def up(self, server: int = 0, *more: str) -> subprocess.Popen[bytes]:
        """Start a server and wait until it listens."""
        before = len(self.log(f"server-{server}", "listening"))
        process = self.serve(server, *more)
        self.servers.append(process)
        until(lambda: len(self.log(f"server-{server}", "listening")) > before or process.poll() is not None)
        return process

    def attend(self, clients: str, *servers: int, more: tuple[str, ...] = ()) -> subprocess.Popen[bytes]:
        """Start clients."""
        process = self.join(clients, [self.addresses[i] for i in servers or (0,)], *more)
        self.clients.append(process)
        return process

    def log(self, name: str, event: str | None = None) -> list[dict[str, Any]]:
        """What a process has logged."""
        path = self.folder / f"{name}.log"
        lines = path.read_text("utf-8").splitlines() if path.exists() else []
        entries = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
        return [entry for entry in entries if event is None or entry["event"] == event]

    def facts(self, kind: str | None = None, server: int = 0) -> list[dict[str, Any]]:
        """What a server has written down so far."""
        try:
            found = [as_table(stated) for stated in RunRecord(self.record(server)).facts()]
        except RecordError:
            return []  # it has not begun
        return [fact for fact in found if fact["kind"] == kind or (kind is None and fact["kind"] != RunStarted.kind)]

    def metric(self, name: str, **labels: str) -> float:
        """What the server tells Prometheus."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=DEADLINE) as answer:
            text = answer.read().decode()
        for line in text.splitlines():
            if line.startswith(f"spyker_{name}{{") and all(f'{k}="{v}"' in line for k, v in labels.items()):
                return float(line.rpartition(" ")[2])
        return 0.0


class Given(NamedTuple):
    """A task that a server gave. Its token is opaque to clients, but not to a test."""

    token: bytes

    @property
    def said(self) -> TaskToken:
        """What the token says."""
        return TaskToken._make(CONTENT.unpack(self.token[: CONTENT.size]))

    def forged(self, **changes: Any) -> bytes:
        """A token that says something else."""
        return CONTENT.pack(*self.said._replace(**changes)) + self.token[CONTENT.size :]


class Speaker:
    """A client made by hand."""

    def __init__(self, deployed: Deployed, client: int, stream: Any, identity: ClientIdentity | None) -> None:
        task = task_spec(deployed.scenario).make()
        self.hello = pb.Hello(
            protocol=PROTOCOL,
            client=client,
            size=1,
            layout=layout_digest(task),
            learning=learning_digest(deployed.scenario),
        )
        self.stream, self.parameters, self.identity = stream, task.initial().size, identity

    async def say(self, **body: Any) -> None:
        """Send a frame."""
        await self.stream.write(pb.Frame(**body).SerializeToString())

    async def read(self) -> pb.Frame:
        """The next frame, weights and all; an error if the stream was ended."""
        async with asyncio.timeout(DEADLINE):
            data = await self.stream.read()
        if data is grpc.aio.EOF:
            raise AssertionError(f"{(await self.stream.code()).name}: {await self.stream.details()}")
        return pb.Frame.FromString(data)

    async def task(self) -> Given:
        """The task that comes next."""
        frame = await self.read()
        assert frame.WhichOneof("body") == "assignment"
        return Given(frame.assignment.task_token)

    async def greet(self) -> None:
        """Answer the server's challenge with Hello."""
        frame = await self.read()
        assert frame.WhichOneof("body") == "challenge"
        answer_challenge(self.hello, frame.challenge, self.identity, None)
        await self.say(hello=self.hello)

    async def enter(self) -> Given:
        """Say Hello and receive a task."""
        await self.greet()
        assert (await self.read()).WhichOneof("body") == "welcome"
        return await self.task()

    def reply(self, token: bytes, weights: Any = None) -> tuple[pb.Update, list[Any]]:
        """An answer to a task, and the weights that follow it."""
        vector = np.ones(self.parameters, np.float32) if weights is None else np.asarray(weights, np.float32)
        answer = pb.Update(task_token=token)
        return answer, fill(answer.content, Update(vector, 0.0, 0), echoed=False)

    async def answer(self, token: bytes, weights: Any = None) -> None:
        """Answer a task."""
        answer, arrays = self.reply(token, weights)
        await send(self.stream.write, pb.Frame(update=answer).SerializeToString(), arrays)

    async def rejection(self) -> tuple[str, str]:
        """How the server ended the stream."""
        async with asyncio.timeout(DEADLINE):
            with contextlib.suppress(grpc.aio.AioRpcError):
                while (data := await self.stream.read()) is not grpc.aio.EOF:
                    _, frame = split(data)
                    assert frame is None or frame.WhichOneof("body") in ("challenge", "welcome"), "it went on"
            return (await self.stream.code()).name, await self.stream.details()


def load_client_pem(certificate: bytes, key: bytes) -> ClientIdentity:
    """An identity that nobody checked."""
    shown = x509.load_pem_x509_certificate(certificate)
    client, own = certified_client(shown), serialization.load_pem_private_key(key, None)
    assert client is not None
    assert isinstance(own, Ed25519PrivateKey)
    return ClientIdentity(client, shown.public_bytes(serialization.Encoding.DER), own)


def client_in(folder: Path) -> int:
    """The number of the client whose certificate is in a folder."""
    certificate = certified_client(x509.load_pem_x509_certificate((folder / "cert.pem").read_bytes()))
    assert certificate is not None
    return certificate.number


@contextlib.asynccontextmanager
async def speaking(
    deployed: Deployed, client: int = 0, *, certs: Path | None = None, identity: Path | None = None, server: int = 0
) -> AsyncIterator[Speaker]:
    """A client made by hand, connected over TLS with its own identity or that of another folder."""
    certs = certs or deployed.folder / "certs"
    own = identity or deployed.folder / "certs" / f"client-{client}"
    authority = grpc.ssl_channel_credentials((certs / "ca.pem").read_bytes())
    async with channel(deployed.addresses[server], 10.0, authority) as connection:
        stream = open_stream(connection, CLIENTS_CONNECT)
        try:
            yield Speaker(deployed, client, stream, load_identity(own, client_in(own)))
        finally:
            stream.cancel()


@contextlib.contextmanager
def deployed(scenario: dict[str, Any], folder: Path, **options: Any) -> Iterator[Deployed]:
    """A deployment that leaves no process behind."""
    with Deployed(scenario, folder, **options) as deployment:
        yield deployment
