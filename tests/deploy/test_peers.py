"""Links between servers, against a callee that is a real gRPC server in the same process."""

import asyncio
import io
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
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
from spyker.deploy.reception import Reception
from spyker.protocol.messages import PeerModel, Token

Callee = Callable[[Any, Any], Awaitable[None]]


@asynccontextmanager
async def linked(
    callee: Callee, outbox: Outbox, lineages: dict[int, str] | None = None
) -> AsyncIterator[tuple[Link, asyncio.Task[None], io.StringIO]]:
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
        lineages={} if lineages is None else lineages,
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


# --- One of two servers has an older state ----------------------------------------------------------------------------


def welcoming(received: int, lineage: str = "", calls: list[int] | None = None) -> Callee:
    """A callee that says what it has, and then reads."""

    async def callee(requests: object, context: Any) -> None:
        if calls is not None:
            calls.append(1)
        await context.read()
        welcome = pb.PeerWelcome(protocol=PROTOCOL, received=received, lineage=lineage)
        await context.write(pb.Frame(peer_welcome=welcome).SerializeToString())
        while await context.read() is not grpc.aio.EOF:
            pass

    return callee


@pytest.mark.parametrize(("received", "whose"), [(2, "its state is an older one"), (6, "of this server is an older")])
def test_a_rollback_ends_a_link_for_good(received: int, whose: str) -> None:
    box = filled(5)
    box.acknowledge(3)

    async def scene() -> None:
        async with linked(welcoming(received), box) as (_, task, said):
            async with asyncio.timeout(10):
                await task  # nothing that happens later can make it try again
            assert "link-refused" in said.getvalue()
            assert whose in said.getvalue()
            assert "restore all from one backup" in said.getvalue()

    asyncio.run(scene())
    assert box.sent == 0


@pytest.mark.parametrize("received", [3, 4, 5])
def test_a_peer_that_has_what_it_saved_or_more_is_told_the_rest(received: int) -> None:
    box = filled(5)
    box.acknowledge(3)

    async def scene() -> None:
        async with linked(welcoming(received), box) as (_, task, said):
            async with asyncio.timeout(10):
                while box.sent < 5:
                    await asyncio.sleep(0.01)
            assert not task.done()
            assert "link-up" in said.getvalue()

    asyncio.run(scene())


def test_a_callee_that_began_anew_is_refused_until_it_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "RETRY_SECONDS", 0.0)
    box, calls, lineages = filled(1), [], {1: "old"}

    async def scene() -> None:
        async with linked(welcoming(0, "new", calls), box, lineages) as (_, task, said):
            async with asyncio.timeout(10):
                while len(calls) < 3:
                    await asyncio.sleep(0.01)
            assert not task.done()
            assert said.getvalue().count("began anew") == 1, "once, not at every attempt"
        async with linked(welcoming(0, "old"), box, lineages):
            async with asyncio.timeout(10):
                while box.sent < 1:
                    await asyncio.sleep(0.01)

    asyncio.run(scene())


def test_a_callee_that_is_new_here_is_remembered() -> None:
    lineages: dict[int, str] = {}

    async def scene() -> None:
        async with linked(welcoming(0, "first"), filled(1), lineages), asyncio.timeout(10):
            while not lineages:
                await asyncio.sleep(0.01)

    asyncio.run(scene())
    assert lineages == {1: "first"}


def test_a_poisonous_message_is_refused_at_the_border_and_counted() -> None:
    refusals: list[str] = []
    arrived: list[object] = []
    said = io.StringIO()

    async def scene() -> None:
        host = SimpleNamespace(
            id=1, lineages={}, received={}, acknowledged={}, on_saved=[], draining=False, arrive=arrived.append,
            log=Log(said, server=1), metrics=SimpleNamespace(refused=refusals.append, received=lambda kind, size: None),
        )  # fmt: skip
        reception = Reception(
            host,  # type: ignore[arg-type]
            algorithm="spyker", servers=2, layout=b"", deployment=b"", lineage="", secure=False,
        )  # fmt: skip
        box = Outbox()
        box.post(Token(0, 1, (0.0, 0.0, 0.0)))
        box.commit(box.last)
        async with linked(reception.link, box) as (_, _, log):
            async with asyncio.timeout(10):
                while not refusals or "a token with 3 ages for 2 servers" not in log.getvalue():
                    await asyncio.sleep(0.01)
        assert host.received == {}, "it was never there"

    asyncio.run(scene())
    assert set(refusals) == {"malformed"}
    assert not arrived
    assert "peer-refused" in said.getvalue()
