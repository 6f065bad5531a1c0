"""A host in the process of the test, its driver, and its port for clients behind a real socket."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TextIO

import grpc.aio
from deployment import table
from members import real_keys

from spyker.config.scenario import from_table
from spyker.net import spyker_pb2 as pb
from spyker.net.buffer_pool import BufferPool
from spyker.net.channels import CLIENTS_CONNECT, channel, handler, open_stream
from spyker.net.checkpoints import Checkpoints
from spyker.net.client_port import ClientLimits, ClientPort
from spyker.net.driver import Driver
from spyker.net.frames import PROTOCOL
from spyker.net.json_log import JsonLog
from spyker.net.metrics import Metrics
from spyker.net.recorder import Recorder
from spyker.node.inbox import NodeOptions
from spyker.node.membership import Membership
from spyker.node.node import Node
from spyker.node.node_clock import NodeClock
from spyker.node.task_tokens import TaskTokens
from spyker.node.views import first_view
from spyker.protocol.codec import Sizes
from spyker.protocol.messages import Update
from spyker.protocol.server import Setup
from spyker.tasks.registry import resolve, task_spec
from spyker.tasks.served_model import ModelSpec

PARAMETERS = 8  # of the task of table()


def make_driver(
    folder: Path, scenario: dict[str, Any] | None = None, *, server: int = 0, said: TextIO | None = None, **rules: Any
) -> Driver:
    """A server that has not begun, and begins with one client unless told otherwise. Call it where a loop runs."""
    resolved = resolve(from_table(scenario or table()))
    task = task_spec(resolved).make()
    places = resolved.placement()
    setup = Setup(
        len(places.learners), places.client_count, task.initial(), resolved.training.rate, resolved.parameters
    )
    log = JsonLog(said or io.StringIO(), server=server)
    behaviour = NodeOptions(**{"clients": 3, "min_clients": 1} | rules)
    clock = NodeClock()
    view = first_view(places.learners, places.servers)
    node = Node(
        server,
        lambda roster: resolved.chosen.create(server, setup, roster),
        TaskTokens(b"s" * 32, 1),
        behaviour,
        membership=Membership(server, view, clock, keys=real_keys(f"server {server}")),
        clock=clock,
    )
    return Driver(
        node,
        parameters=PARAMETERS,
        buffers=BufferPool(PARAMETERS, 1 << 20),
        layout={},
        identity={},
        checkpoints=Checkpoints(folder / "state", 3),
        recorder=Recorder(resolved, ModelSpec.of(task), server, folder / "record", resume=False, log=log),
        metrics=Metrics(server, resolved.algorithm),
        log=log,
    )


@asynccontextmanager
async def at_the_port(driver: Driver, limits: ClientLimits | None = None, **hello: Any) -> AsyncIterator[Any]:
    """A stream, in plaintext, of client 0 that has said Hello."""
    port = ClientPort(driver, Sizes(PARAMETERS, 1), [Update], None, limits or ClientLimits())
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((handler(CLIENTS_CONNECT, port.attend),))
    number = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    watch = asyncio.create_task(port.watch())
    async with channel(f"127.0.0.1:{number}", 10.0, None) as connection:
        stream = open_stream(connection, CLIENTS_CONNECT)
        await stream.read()  # the challenge
        greeting = pb.Hello(**{"protocol": PROTOCOL, "client": 0, "size": 1} | hello)
        await stream.write(pb.Frame(hello=greeting).SerializeToString())
        try:
            yield stream
        finally:
            stream.cancel()
            watch.cancel()
            await server.stop(None)
