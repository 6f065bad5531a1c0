"""Links between servers, against a callee that is a real gRPC server in the same process."""

import asyncio
import io
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import numpy as np
import pytest
from deployment import table
from members import handshake, real_keys
from node_fixtures import PARAMETERS, make_driver

from spyker.algorithms.spyker import Spyker
from spyker.net import peer_link
from spyker.net import spyker_pb2 as pb
from spyker.net.channels import PEERS_CONNECT, PEERS_CONTROL, handler
from spyker.net.driver import Driver
from spyker.net.frames import PROTOCOL
from spyker.net.peer_link import PeerLink
from spyker.net.peer_port import PeerPort
from spyker.net.peer_signatures import ANSWER, sign_peer
from spyker.node.control_messages import BootstrapRequest, to_json
from spyker.node.effects import Effect, SendControl
from spyker.node.events import ControlReceived, Event
from spyker.node.outbox import Outbox, OutboxEntry
from spyker.protocol.codec import Sizes
from spyker.protocol.messages import PeerModel, Token

Callee = Callable[[Any, Any], Awaitable[None]]
TWO = table("spyker", (1, 1))


@asynccontextmanager
async def linked(
    callee: Callee, driver: Driver, peer: int = 1, control: Callee | None = None
) -> AsyncIterator[asyncio.Task[None]]:
    """A link at work: its task."""
    server = grpc.aio.server()
    methods = {PEERS_CONNECT: callee, PEERS_CONTROL: control or silent}
    server.add_generic_rpc_handlers(tuple(handler(method, serve) for method, serve in methods.items()))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    link = PeerLink(driver, peer, f"127.0.0.1:{port}", credentials=None, keepalive=10.0, stall=10.0)
    task = asyncio.create_task(link.run())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait((task,))
        await server.stop(None)


async def silent(requests: object, context: Any, end: asyncio.Event | None = None) -> None:
    """Accept control messages, and ignore them until an event."""
    await welcome(context, "")
    await (end or asyncio.Event()).wait()


def fill(driver: Driver, count: int) -> Outbox:
    """Put models that may be sent into the outbox."""
    box = driver.node.outboxes[1]
    for bid in range(1, count + 1):
        box.last += 1
        box.entries.append(OutboxEntry(bid, PeerModel(np.ones(PARAMETERS, np.float32), 1.0, bid)))
    box.commit(box.last)
    return box


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(120):
        while not condition():
            await asyncio.sleep(0.01)


def test_a_link_survives_a_callee_that_ends_the_stream_at_any_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_link, "LONGEST_PAUSE", 0.0)
    monkeypatch.setattr(peer_link, "FIRST_PAUSE", 0.0)
    calls = 0
    enough = asyncio.Event()

    async def abrupt(requests: object, context: Any) -> None:
        nonlocal calls
        calls += 1
        await welcome(context, "")
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
            await asyncio.wait((task, waiting), timeout=200, return_when=asyncio.FIRST_COMPLETED)
            assert not task.done(), task.exception()
            assert enough.is_set()

    asyncio.run(scene())


# --- One of two servers has an older state ----------------------------------------------------------------------------


async def welcome(context: Any, name: str, server: int = 1, received: int = 0) -> None:
    """Answer a call as a server whose keys follow from this name."""
    keys = real_keys(name)
    await context.write(
        pb.Frame(challenge=pb.Challenge(protocol=PROTOCOL, server=server, nonce=b"n")).SerializeToString()
    )
    hello = pb.Frame.FromString(await context.read()).peer_hello
    said = to_json(handshake(server, keys=keys))
    signature = sign_peer(keys, ANSWER, server, 0, hello.nonce, said)
    body = pb.PeerWelcome(protocol=PROTOCOL, received=received, handshake=said, server=server, signature=signature)
    await context.write(pb.Frame(peer_welcome=body).SerializeToString())


def welcoming(
    received: int,
    name: str = "",
    calls: list[int] | None = None,
    server: int = 1,
    heard: list[bytes] | None = None,
) -> Callee:
    """A callee that says what it has, and then reads."""

    async def callee(requests: object, context: Any) -> None:
        if calls is not None:
            calls.append(1)
        await welcome(context, name, server, received)
        while (data := await context.read()) is not grpc.aio.EOF:
            if heard is not None:
                heard.append(data)

    return callee


def test_a_callee_that_was_rolled_back_is_told_nothing(tmp_path: Path) -> None:
    said = io.StringIO()
    heard: list[bytes] = []

    async def scene() -> None:
        driver = make_driver(tmp_path, TWO, said=said)
        fill(driver, 5).acknowledge(3)
        async with linked(welcoming(2, heard=heard), driver):
            await until(lambda: "its state is an older one" in said.getvalue())
        assert not heard
        assert not driver.stopped.done()

    asyncio.run(scene())


def test_a_server_that_was_rolled_back_itself_learns_it_from_another_and_stops(tmp_path: Path) -> None:
    async def scene() -> None:
        driver = make_driver(tmp_path, TWO)
        fill(driver, 5)
        async with linked(welcoming(6), driver), asyncio.timeout(120):
            order = await driver.stopped
        assert order.restart
        assert "state of this server is an older one" in order.reason

    asyncio.run(scene())


def test_whoever_answers_in_the_place_of_another_is_named_and_not_remembered(tmp_path: Path) -> None:
    said = io.StringIO()

    async def scene() -> None:
        driver = make_driver(tmp_path, table("spyker", (1, 1, 1)), said=said)
        async with linked(welcoming(0, "first", server=2), driver):
            await until(lambda: "server 2 answers instead of server 1" in said.getvalue())
        assert driver.node.membership.lineages == {}
        async with linked(welcoming(0, "first"), driver):
            await until(lambda: driver.node.membership.lineages)

    asyncio.run(scene())


@pytest.mark.parametrize("received", [3, 4, 5])
def test_a_peer_that_has_what_it_saved_or_more_is_told_the_rest(tmp_path: Path, received: int) -> None:
    said = io.StringIO()
    heard: list[bytes] = []

    async def scene() -> None:
        driver = make_driver(tmp_path, TWO, said=said)
        fill(driver, 5).acknowledge(3)
        async with linked(welcoming(received, heard=heard), driver) as task:
            await until(lambda: "link-up" in said.getvalue() and len(heard) == 5 - received)
            assert not task.done()

    asyncio.run(scene())
    assert "link-up" in said.getvalue()


def test_a_callee_that_began_anew_is_refused_until_it_is_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_link, "LONGEST_PAUSE", 0.0)
    monkeypatch.setattr(peer_link, "FIRST_PAUSE", 0.0)
    calls: list[int] = []
    heard: list[bytes] = []
    said = io.StringIO()

    async def scene() -> None:
        driver = make_driver(tmp_path, TWO, said=said)
        driver.node.membership.lineages[1] = real_keys("old").lineage
        fill(driver, 1)
        async with linked(welcoming(0, "new", calls), driver) as task:
            await until(lambda: len(calls) >= 3)
            assert not task.done()
        assert said.getvalue().count("is another one") == 1, "once, not at every attempt"
        async with linked(welcoming(0, "old", heard=heard), driver):
            await until(lambda: heard)

    asyncio.run(scene())


def test_a_callee_that_is_new_here_is_remembered(tmp_path: Path) -> None:
    async def scene() -> None:
        driver = make_driver(tmp_path, TWO)
        async with linked(welcoming(0, "first"), driver):
            await until(lambda: driver.node.membership.lineages)
        assert driver.node.membership.lineages == {1: real_keys("first").lineage}

    asyncio.run(scene())


# --- Both sides -------------------------------------------------------------------------------------------------------


def test_a_poisonous_message_is_refused_at_the_border_and_counted(tmp_path: Path) -> None:
    heard, told = io.StringIO(), io.StringIO()

    async def scene() -> None:
        callee = make_driver(tmp_path / "callee", TWO, server=1, said=heard)
        caller = make_driver(tmp_path / "caller", TWO, said=told)
        port = PeerPort(callee, Sizes(PARAMETERS, 2), lambda j: Spyker.receives, secure=False)
        caller.node.outboxes[1].post(Token(0, 0, (0.0, 0.0)))
        caller.node.outboxes[1].commit(1)
        async with linked(port.link, caller):
            await until(lambda: "`$.bid`" in told.getvalue())
        assert callee.node.received == {}, "it was never there"
        assert callee.node.waiting == 0

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


def test_a_server_that_has_not_begun_goes_on_listening_and_keeps_the_latest(tmp_path: Path) -> None:
    """What lets it begin, the gift of another server, may come behind what it cannot serve yet."""

    async def scene() -> None:
        callee = make_driver(tmp_path / "callee", TWO, server=1)
        caller = make_driver(tmp_path / "caller", TWO)
        fill(caller, 3)
        port = PeerPort(callee, Sizes(PARAMETERS, 2), lambda j: Spyker.receives, secure=False)
        async with linked(port.link, caller):
            await until(lambda: callee.node.received.get(0) == 3)
        assert callee.node.server is None
        assert callee.node.waiting == 1

    asyncio.run(scene())


def test_control_messages_do_not_wait_for_models(tmp_path: Path) -> None:
    """Otherwise whoever sends a large model over a slow link would be suspected."""
    heard: list[Event] = []

    async def scene() -> None:
        callee = make_driver(tmp_path / "callee", TWO, server=1)
        caller = make_driver(tmp_path / "caller", TWO)
        step = callee.node.step

        def watched(event: Event) -> list[Effect]:
            if isinstance(event, ControlReceived):
                heard.append(event)
            return step(event)

        callee.node.step = watched  # type: ignore[method-assign]
        reading = asyncio.Event()

        async def stuck(requests: object, context: Any) -> None:
            """Read the hello, and nothing of the models."""
            await welcome(context, "")
            reading.set()
            await asyncio.Event().wait()

        size = 1 << 23  # 32 MB, more than all buffers on the way take
        box = caller.node.outboxes[1]
        box.post(PeerModel(np.ones(size, np.float32), 1.0, 1))
        box.commit(box.last)
        port = PeerPort(callee, Sizes(size, 2), lambda j: Spyker.receives, secure=False)
        async with linked(stuck, caller, control=port.control):
            await reading.wait()
            while len(heard) < 3:  # those before the connection is there are lost
                caller.perform(SendControl(1, BootstrapRequest()))
                await asyncio.sleep(0.01)

    asyncio.run(scene())
    assert all(isinstance(event, ControlReceived) and event.server == 0 for event in heard)


def test_a_connection_that_the_network_has_swallowed_is_replaced_with_the_one_for_control_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection for control messages notices it sooner, since its pings wait for no model."""
    monkeypatch.setattr(peer_link, "LONGEST_PAUSE", 0.01)
    calls: list[int] = []
    late = 0.0

    async def scene() -> None:
        nonlocal late
        end = asyncio.Event()

        async def ending(requests: object, context: Any) -> None:
            await silent(requests, context, end)

        caller = make_driver(tmp_path, TWO)
        monkeypatch.setattr(caller, "now", lambda: time.monotonic() + late)
        async with linked(welcoming(0, calls=calls), caller, control=ending):
            await until(lambda: len(calls) == 1)
            late = 1000.0  # nothing was sent or acknowledged since
            end.set()
            await until(lambda: len(calls) >= 2)

    asyncio.run(scene())
