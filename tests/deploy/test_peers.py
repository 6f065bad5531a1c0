"""Links between servers, against a callee that is a real gRPC server in the same process."""

import asyncio
import io
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import numpy as np
import pytest

from spyker.deploy import peers
from spyker.deploy import spyker_pb2 as pb
from spyker.deploy.channels import LINK, handler
from spyker.deploy.frames import PROTOCOL
from spyker.deploy.log import Log
from spyker.deploy.peers import Link, Outbox
from spyker.protocol.messages import PeerModel

Callee = Callable[[Any, Any], Awaitable[None]]


@asynccontextmanager
async def linked(callee: Callee, outbox: Outbox) -> AsyncIterator[tuple[Link, asyncio.Task[None], io.StringIO]]:
    """A link at work, its task, and what it logs."""
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((handler(LINK, callee),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    said = io.StringIO()
    link = Link(
        1,
        f"127.0.0.1:{port}",
        outbox,
        pb.PeerHello(protocol=PROTOCOL),
        credentials=None,
        keepalive=10.0,
        stall=10.0,
        log=Log(said, server=0),
        on_sent=lambda kind, size: None,
    )
    task = asyncio.create_task(link.run())
    try:
        yield link, task, said
    finally:
        task.cancel()
        await asyncio.wait((task,))
        await server.stop(None)


def filled(count: int, parameters: int = 10) -> Outbox:
    """An outbox with models that may be sent."""
    box = Outbox()
    for bid in range(1, count + 1):
        box.post(PeerModel(np.ones(parameters, np.float32), 1.0, bid))
    box.commit(box.last)
    return box


def test_a_link_survives_a_callee_that_ends_the_stream_at_any_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "RETRY_SECONDS", 0.0)
    calls = 0
    enough = asyncio.Event()

    async def abrupt(requests: object, context: Any) -> None:
        nonlocal calls
        calls += 1
        await context.read()
        await context.write(pb.Frame(peer_welcome=pb.PeerWelcome(protocol=PROTOCOL)).SerializeToString())
        for _ in range(calls % 5):
            await context.read()
        if calls == 200:
            enough.set()
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "no more")

    async def scene() -> None:
        async with linked(abrupt, filled(50, 20_000)) as (_, task, _):
            waiting = asyncio.create_task(enough.wait())
            await asyncio.wait((task, waiting), timeout=30, return_when=asyncio.FIRST_COMPLETED)
            assert not task.done(), task.exception()
            assert enough.is_set()

    asyncio.run(scene())
