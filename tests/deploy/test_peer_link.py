"""Links between servers, against a callee that is a real gRPC server in the same process."""

import asyncio
import io
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import numpy as np
import pytest
from deployment import table
from hosting import PARAMETERS, make_driver

from spyker.deploy import peer_link
from spyker.deploy import spyker_pb2 as pb
from spyker.deploy.channels import LINK, handler
from spyker.deploy.driver import Driver
from spyker.deploy.frames import PROTOCOL
from spyker.deploy.peer_link import PeerLink
from spyker.deploy.peer_port import PeerPort
from spyker.host.outbox import Outbox
from spyker.protocol.forms import Sizes
from spyker.protocol.messages import PeerModel, Token
from spyker.protocol.spyker import Spyker

Callee = Callable[[Any, Any], Awaitable[None]]
TWO = table("spyker", (1, 1))


@asynccontextmanager
async def linked(callee: Callee, driver: Driver, peer: int = 1) -> AsyncIterator[asyncio.Task[None]]:
    """A link at work: its task."""
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((handler(LINK, callee),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    hello = pb.PeerHello(protocol=PROTOCOL, server=driver.host.id)
    link = PeerLink(driver, peer, f"127.0.0.1:{port}", hello, credentials=None, keepalive=10.0, stall=10.0)
    task = asyncio.create_task(link.run())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait((task,))
        await server.stop(None)


def fill(driver: Driver, count: int) -> Outbox:
    """Put models that may be sent into the outbox."""
    box = driver.host.outboxes[1]
    for bid in range(1, count + 1):
        box.post(PeerModel(np.ones(PARAMETERS, np.float32), 1.0, bid))
    box.commit(box.last)
    return box


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)


def test_a_link_survives_a_callee_that_ends_the_stream_at_any_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_link, "RETRY_SECONDS", 0.0)
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
        driver = make_driver(tmp_path, TWO)
        fill(driver, 50)
        async with linked(abrupt, driver) as task:
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
def test_a_rollback_ends_a_link_for_good(tmp_path: Path, received: int, whose: str) -> None:
    said = io.StringIO()

    async def scene() -> None:
        driver = make_driver(tmp_path, TWO, said=said)
        box = fill(driver, 5)
        box.acknowledge(3)
        async with linked(welcoming(received), driver) as task, asyncio.timeout(10):
            await task  # nothing that happens later can make it try again
        assert box.sent == 0

    asyncio.run(scene())
    assert "link-refused" in said.getvalue()
    assert whose in said.getvalue()
    assert "restore all from one backup" in said.getvalue()


@pytest.mark.parametrize("received", [3, 4, 5])
def test_a_peer_that_has_what_it_saved_or_more_is_told_the_rest(tmp_path: Path, received: int) -> None:
    said = io.StringIO()

    async def scene() -> None:
        driver = make_driver(tmp_path, TWO, said=said)
        box = fill(driver, 5)
        box.acknowledge(3)
        async with linked(welcoming(received), driver) as task:
            await until(lambda: box.sent == 5)
            assert not task.done()

    asyncio.run(scene())
    assert "link-up" in said.getvalue()


def test_a_callee_that_began_anew_is_refused_until_it_is_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_link, "RETRY_SECONDS", 0.0)
    calls: list[int] = []
    said = io.StringIO()

    async def scene() -> None:
        driver = make_driver(tmp_path, TWO, said=said)
        driver.host.lineages[1] = "old"
        box = fill(driver, 1)
        async with linked(welcoming(0, "new", calls), driver) as task:
            await until(lambda: len(calls) >= 3)
            assert not task.done()
        assert said.getvalue().count("began anew") == 1, "once, not at every attempt"
        async with linked(welcoming(0, "old"), driver):
            await until(lambda: box.sent)

    asyncio.run(scene())


def test_a_callee_that_is_new_here_is_remembered(tmp_path: Path) -> None:
    async def scene() -> None:
        driver = make_driver(tmp_path, TWO)
        async with linked(welcoming(0, "first"), driver):
            await until(lambda: driver.host.lineages)
        assert driver.host.lineages == {1: "first"}

    asyncio.run(scene())


# --- Both sides -------------------------------------------------------------------------------------------------------


def test_a_poisonous_message_is_refused_at_the_border_and_counted(tmp_path: Path) -> None:
    heard, told = io.StringIO(), io.StringIO()

    async def scene() -> None:
        callee = make_driver(tmp_path / "callee", TWO, server=1, said=heard)
        caller = make_driver(tmp_path / "caller", TWO, said=told)
        port = PeerPort(callee, Sizes(PARAMETERS, 2), lambda j: Spyker.hears, secure=False)
        caller.host.outboxes[1].post(Token(0, 1, (0.0, 0.0, 0.0)))
        caller.host.outboxes[1].commit(1)
        async with linked(port.link, caller):
            await until(lambda: "3 ages for 2 servers" in told.getvalue())
        assert callee.host.received == {}, "it was never there"
        assert callee.host.waiting == 0

    asyncio.run(scene())
    assert '"reason": "malformed"' in heard.getvalue()


def test_a_server_with_nothing_to_say_here_may_say_nothing(tmp_path: Path) -> None:
    told = io.StringIO()

    async def scene() -> None:
        callee = make_driver(tmp_path / "callee", TWO, server=1)
        caller = make_driver(tmp_path / "caller", TWO, said=told)
        fill(caller, 1)
        port = PeerPort(callee, Sizes(PARAMETERS, 2), lambda j: (), secure=False)
        async with linked(port.link, caller):
            await until(lambda: "it may be nothing" in told.getvalue())

    asyncio.run(scene())
