"""A host in the process of the test, and its door behind a real socket."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio
from deployment import table

from spyker.config.scenario import from_table
from spyker.deploy import spyker_pb2 as pb
from spyker.deploy.attend import Door
from spyker.deploy.channels import ATTEND, channel, handler, open_stream
from spyker.deploy.checkpoints import Checkpoints
from spyker.deploy.config import Config, Deployment
from spyker.deploy.frames import PROTOCOL
from spyker.deploy.host import Host
from spyker.deploy.log import Log
from spyker.deploy.metrics import Metrics
from spyker.deploy.tally import Tally
from spyker.deploy.tasks import Ledger
from spyker.learn.registry import recipe, resolve


def make_host(folder: Path, scenario: dict[str, Any] | None = None, **deploy: Any) -> Host:
    """A server that has not begun. Call it where a loop runs."""
    resolved = resolve(from_table(scenario or table()))
    task = recipe(resolved).make()
    log = Log(io.StringIO(), server=0)
    return Host(
        Config(resolved, Deployment(**deploy), folder),
        task,
        task.initial(),
        ledger=Ledger(b"s" * 32, 1),
        checkpoints=Checkpoints(folder / "state", 3),
        tally=Tally(resolved, task, 0, folder / "record", resume=False, log=log),
        metrics=Metrics(0, resolved.algorithm),
        log=log,
    )


@asynccontextmanager
async def at_the_door(host: Host, **hello: Any) -> AsyncIterator[Any]:
    """A stream, in plaintext, of client 0 that has said Hello."""
    door = Door(host, clients=3, credentials=None, layout=b"", learning=b"")
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((handler(ATTEND, door.attend),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    watch = asyncio.create_task(door.watch(host.config.deploy.stall_timeout))
    async with channel(f"127.0.0.1:{port}", 10.0, None) as connection:
        stream = open_stream(connection, ATTEND)
        greeting = pb.Hello(**{"protocol": PROTOCOL, "client": 0, "size": 1} | hello)
        await stream.write(pb.Frame(hello=greeting).SerializeToString())
        try:
            yield stream
        finally:
            stream.cancel()
            watch.cancel()
            await server.stop(None)
