"""The port for clients of a server that runs in this process: what it believes, and how long it waits."""

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from deployment import table
from members import real_keys
from node_fixtures import at_the_port, make_driver

from spyker.net import spyker_pb2 as pb
from spyker.net.client_port import ClientLimits
from spyker.net.streams import read_body
from spyker.node.inbox import MOST_DATA
from spyker.node.member_list import FollowedMembers
from spyker.protocol.messages import Update


async def ending(stream: Any) -> str:
    """How the server ended the stream."""
    async with asyncio.timeout(120):
        with contextlib.suppress(grpc.aio.AioRpcError):
            while await stream.read() is not grpc.aio.EOF:
                pass
        return f"{(await stream.code()).name} {await stream.details()}"


@pytest.mark.parametrize(("size", "most"), [(0, None), (MOST_DATA + 1, None), (2**61, None), (101, 100)])
def test_claims_of_data_beyond_measure_are_refused(tmp_path: Path, size: int, most: int | None) -> None:
    async def scene() -> None:
        driver = make_driver(tmp_path, min_clients=2, most_data=most or MOST_DATA)
        async with at_the_port(driver, size=size) as stream:
            assert "FAILED_PRECONDITION mismatch" in await ending(stream)
        assert driver.node.sessions == {}
        driver.close()

    asyncio.run(scene())


@pytest.mark.parametrize(("size", "most"), [(MOST_DATA, None), (100, 100)])
def test_claims_of_data_up_to_the_limit_are_believed(tmp_path: Path, size: int, most: int | None) -> None:
    async def scene() -> None:
        driver = make_driver(tmp_path, min_clients=2, most_data=most or MOST_DATA)
        async with at_the_port(driver, size=size) as stream:
            assert pb.Frame.FromString(await stream.read()).HasField("welcome")
            assert driver.node.clients[0].size == size
        driver.close()

    asyncio.run(scene())


def test_a_client_that_trickles_is_disconnected(tmp_path: Path) -> None:
    """It never stops for as long as stall-timeout, and yet holds memory for a model."""

    async def scene() -> None:
        driver = make_driver(tmp_path)
        driver.begin()
        async with at_the_port(driver, ClientLimits(stall=1.0)) as stream:
            await stream.read()  # the welcome
            token = pb.Frame.FromString(await stream.read()).assignment.task_token
            answer = pb.Update(task_token=token, content=pb.Content(kind=Update.kind, fields=b"{}"))
            await stream.write(pb.Frame(chunk=bytes(4), update=answer).SerializeToString())
            with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError, grpc.aio.UsageError):
                for _ in range(7):  # the model has 8 weights
                    await asyncio.sleep(0.3)
                    await stream.write(pb.Frame(chunk=bytes(4)).SerializeToString())
            assert "ABORTED a model arrived more slowly" in await ending(stream)
        await driver.settle()
        assert driver.recorder.updates == 0
        driver.close()

    asyncio.run(scene())


@pytest.mark.parametrize("asks", [False, True])
def test_a_client_that_asks_for_it_is_sent_the_member_list_after_its_welcome(tmp_path: Path, asks: bool) -> None:
    async def scene() -> None:
        driver = make_driver(tmp_path, table("spyker", (1, 1)))
        driver.begin()
        async with asyncio.timeout(120), at_the_port(driver, members=asks) as stream:
            assert (await read_body(stream, "welcome")).server == 0
            frame = pb.Frame.FromString(await stream.read())
            assert frame.WhichOneof("body") == ("member_list" if asks else "assignment")
            if asks:
                follower = FollowedMembers(driver.node.view, real_keys("a client"))
                assert not follower.update(frame.member_list.json), "the first view, without addresses"
                assert follower.lineage(0) == driver.node.membership.lineage
        driver.close()

    asyncio.run(scene())
