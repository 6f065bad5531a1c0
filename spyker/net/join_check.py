"""``spyker join --check``: whether a client could take part. Nothing is changed, and no server registers the client."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Mapping
from typing import NamedTuple

import grpc

from spyker.engines.engine import InProcessEngine, TrainJob
from spyker.errors import DataError, TaskError, UsageError
from spyker.net import spyker_pb2 as pb
from spyker.net.certificates import CA
from spyker.net.channels import CLIENTS_CONNECT, read_file
from spyker.net.client_folder import ClientFolder
from spyker.net.client_identity import ClientIdentity, answer_challenge, load_identity
from spyker.net.client_process import client_task
from spyker.net.connection_hints import connection_hint
from spyker.net.frames import PROTOCOL
from spyker.net.nearest_server import round_trip
from spyker.net.server_config import learning_digest
from spyker.net.streams import CONNECTION_LOST, end_status, read_body
from spyker.net.transports import Connections, NetworkOptions, TransportChoice
from spyker.tasks.checked_task import CheckedTask
from spyker.tasks.layout import layout_digest
from spyker.tasks.registry import rate_of
from spyker.tasks.task import Task
from spyker.vectors import is_finite

CONTACT_SECONDS = 15.0


class TrainingReport(NamedTuple):
    """What a trial training took."""

    examples: int
    load_seconds: float
    train_seconds: float
    peak_mb: float | None


def check_servers(folder: ClientFolder, network: NetworkOptions) -> dict[str, float]:
    """Check a client's certificate and key, and that each server accepts it.

    Args:
        folder: the client's folder.
        network: transport and proxy.

    Returns:
        The time of a health check for each address, in seconds.

    Raises:
        UsageError: names the file or address, what is wrong with it and the remedy.

    """
    identity = load_identity(folder.path, folder.client.number)
    return asyncio.run(_greet_all(folder, identity, network))


async def _greet_all(folder: ClientFolder, identity: ClientIdentity, network: NetworkOptions) -> dict[str, float]:
    client, authority = folder.client, read_file(folder.path / CA, str(folder.path / CA))
    numbers: Mapping[str, int] = dict(zip(client.servers, client.numbers, strict=False))
    connections = Connections(network, TransportChoice(network.transport, network.state), authority)
    seconds = {}
    try:
        for address in client.servers:
            hello = pb.Hello(
                protocol=PROTOCOL,
                client=client.number,
                size=1,
                layout=bytes.fromhex(client.layout),
                learning=learning_digest(folder.scenario),
                check=True,
            )
            try:
                seconds[address] = await _contact(connections, address, hello, identity, numbers.get(address))
            except CONNECTION_LOST as error:
                code, said = end_status(error)
                said = f"no answer within {CONTACT_SECONDS:g} s" if isinstance(error, TimeoutError) else said
                remedy = connection_hint(code, said, insecure=False) or REMEDIES.get(code, UNREACHABLE)
                raise UsageError("client.servers", f"{address} refuses or does not answer: {said}", remedy) from None
    finally:
        await connections.close()
    return seconds


UNREACHABLE = "Start the server, and let firewalls pass connections to this address"
REMEDIES = {
    grpc.StatusCode.UNAUTHENTICATED: "Ask the operator for a new folder: spyker federation renew",
    grpc.StatusCode.FAILED_PRECONDITION: "Use the same version of Spyker and the folder of the same federation",
}


async def _contact(
    connections: Connections, address: str, hello: pb.Hello, identity: ClientIdentity, server: int | None
) -> float:
    """Greet a server, over another transport if need be, and return the round-trip time."""
    try:
        return await _greet(connections, address, hello, identity, server)
    except CONNECTION_LOST as error:
        if not connections.failed(address, error):
            raise
    return await _greet(connections, address, hello, identity, server)


async def _greet(
    connections: Connections, address: str, hello: pb.Hello, identity: ClientIdentity, server: int | None
) -> float:
    async with asyncio.timeout(CONTACT_SECONDS):
        seconds = await round_trip(connections, address)
        if seconds is None:
            raise UsageError("client.servers", f"{address} is stopping", "Try again when it has started")
        stream = await connections.open(address, CLIENTS_CONNECT)
        try:
            answer_challenge(hello, await read_body(stream, "challenge"), identity, server)
            await stream.write(pb.Frame(hello=hello).SerializeToString())
            await read_body(stream, "welcome")
        finally:
            stream.cancel()
    connections.worked(address)
    return seconds


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
    return TrainingReport(examples, loaded - began, time.perf_counter() - loaded, peak_memory())


def peak_memory() -> float | None:
    """Return the peak memory of this process in MB; ``None`` on Windows, where Python does not know it."""
    try:
        import resource
    except ModuleNotFoundError:
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)


def check_join(folder: ClientFolder) -> TrainingReport:
    """Make the task, load the data of a client and train once."""
    began, client = time.perf_counter(), folder.client
    try:
        task = client_task(folder.scenario, [client.number], {client.number: client.name}, folder.options)
    except (TaskError, DataError) as error:
        raise UsageError("task", f"cannot be made: {error}", "Fix the data or the task's code") from error
    return try_training(folder, task, began)
