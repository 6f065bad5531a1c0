"""``spyker join --check``: whether a client could take part. Nothing is changed, and no server registers the client."""

from __future__ import annotations

import asyncio
import resource
import sys
import time
from collections.abc import Mapping
from typing import NamedTuple

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from spyker.engines.engine import InProcessEngine, TrainJob
from spyker.errors import DataError, TaskError, UsageError
from spyker.net import spyker_pb2 as pb
from spyker.net.certificates import CA
from spyker.net.channels import CLIENTS_CONNECT, channel, open_stream, read_file
from spyker.net.client_folder import ClientFolder
from spyker.net.client_identity import ClientIdentity, answer_challenge, load_identity
from spyker.net.client_process import client_task
from spyker.net.connection_hints import connection_hint
from spyker.net.frames import PROTOCOL
from spyker.net.server_config import learning_digest
from spyker.net.streams import CONNECTION_LOST, end_status, read_body
from spyker.tasks.checked_task import CheckedTask
from spyker.tasks.layout import layout_digest
from spyker.tasks.registry import rate_of
from spyker.tasks.task import Task
from spyker.vectors import is_finite

CONTACT_SECONDS = 15.0
KEEPALIVE_SECONDS = 10.0


class TrainingReport(NamedTuple):
    """What a trial training took."""

    examples: int
    load_seconds: float
    train_seconds: float
    peak_mb: float


def check_servers(folder: ClientFolder) -> dict[str, float]:
    """Check a client's certificate and key, and that each server accepts it.

    Returns:
        The time of a health check for each address, in seconds.

    Raises:
        UsageError: names the file or address, what is wrong with it and the remedy.

    """
    identity = load_identity(folder.path, folder.client.number)
    return asyncio.run(_greet_all(folder, identity))


async def _greet_all(folder: ClientFolder, identity: ClientIdentity) -> dict[str, float]:
    client = folder.client
    verified = grpc.ssl_channel_credentials(read_file(folder.path / CA, str(folder.path / CA)))
    numbers: Mapping[str, int] = dict(zip(client.servers, client.numbers, strict=False))
    seconds = {}
    for address in client.servers:
        hello = pb.Hello(
            protocol=PROTOCOL,
            client=client.number,
            size=1,
            layout=bytes.fromhex(client.layout),
            learning=learning_digest(folder.scenario),
            check=True,
        )
        async with channel(address, KEEPALIVE_SECONDS, verified) as connection:
            try:
                async with asyncio.timeout(CONTACT_SECONDS):
                    seconds[address] = await _measure(address, connection)
                    await _greet(connection, hello, identity, numbers.get(address))
            except CONNECTION_LOST as error:
                code, said = end_status(error)
                said = f"no answer within {CONTACT_SECONDS:g} s" if isinstance(error, TimeoutError) else said
                remedy = connection_hint(code, said, insecure=False) or REMEDIES.get(code, UNREACHABLE)
                raise UsageError("client.servers", f"{address} refuses or does not answer: {said}", remedy) from None
    return seconds


UNREACHABLE = "Start the server, and let firewalls pass connections to this address"
REMEDIES = {
    grpc.StatusCode.UNAUTHENTICATED: "Ask the operator for a new folder: spyker federation renew",
    grpc.StatusCode.FAILED_PRECONDITION: "Use the same version of Spyker and the folder of the same federation",
}


async def _measure(address: str, connection: grpc.aio.Channel) -> float:
    """Ask a server for its health, and return the time of the second answer: the first pays for the connection."""
    stub = health_pb2_grpc.HealthStub(connection)
    await stub.Check(health_pb2.HealthCheckRequest(), wait_for_ready=False)
    began = time.perf_counter()
    answer = await stub.Check(health_pb2.HealthCheckRequest())
    if answer.status != health_pb2.HealthCheckResponse.SERVING:
        raise UsageError("client.servers", f"{address} is stopping", "Try again when it has started")
    return time.perf_counter() - began


async def _greet(connection: grpc.aio.Channel, hello: pb.Hello, identity: ClientIdentity, server: int | None) -> None:
    stream = open_stream(connection, CLIENTS_CONNECT)
    try:
        answer_challenge(hello, await read_body(stream, "challenge"), identity, server)
        await stream.write(pb.Frame(hello=hello).SerializeToString())
        await read_body(stream, "welcome")
    finally:
        stream.cancel()


def try_training(folder: ClientFolder, task: Task, began: float) -> TrainingReport:
    """Load the client's data and train once, without sending anything.

    Args:
        folder: the client's folder.
        task: the task with this client's data.
        began: when the making of the task began, on ``time.perf_counter``.

    """
    number = folder.client.number
    if layout_digest(task).hex() != folder.client.layout:
        problem = f"the model of {folder.scenario.task.name} has another layout than the federation's"
        raise UsageError("task.name", problem, "Use the operator's version of the task's code and packages")
    try:
        examples = CheckedTask(task).size(number)
        loaded = time.perf_counter()
        job = TrainJob(number, task.initial(), rate_of(folder.scenario.training, task), 0)
        if not is_finite(InProcessEngine(task).trained(job)):
            raise UsageError("training.rate", "the training diverged", "Check the data, or set a lower training.rate")
    except (TaskError, DataError) as error:
        remedy = "Fix the data or the task's code; --data and --option name the data"
        raise UsageError("task", f"the training failed: {error}", remedy) from error
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)
    return TrainingReport(examples, loaded - began, time.perf_counter() - loaded, peak)


def check_join(folder: ClientFolder) -> TrainingReport:
    """Make the task, load the data of a client and train once."""
    began, client = time.perf_counter(), folder.client
    try:
        task = client_task(folder.scenario, [client.number], {client.number: client.name}, folder.options)
    except (TaskError, DataError) as error:
        raise UsageError("task", f"cannot be made: {error}", "Fix the data or the task's code") from error
    return try_training(folder, task, began)
