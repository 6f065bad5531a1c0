"""What carries out a host's decisions, in this process."""

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from deployment import table
from node_fixtures import make_driver

from spyker.algorithms.builtin import ALGORITHMS
from spyker.net import driver as module
from spyker.net import spyker_pb2 as pb
from spyker.net.driver import Driver
from spyker.node.events import ClientConnected, ClientLeft, PeerConnected, PeerMessageReceived, UpdateReceived
from spyker.protocol.codec import Array
from spyker.protocol.messages import Update
from spyker.protocol.server import Server


class Remembered:
    """The connection of a client that remembers its last task."""

    def __init__(self) -> None:
        self.token = b""

    def give(self, body: bytes, arrays: Sequence[Array], kind: str) -> None:
        self.token = pb.Frame.FromString(body).assignment.task_token

    def note(self, body: bytes) -> None:
        assert pb.Frame.FromString(body).HasField("welcome")

    def close(self, reason: str) -> None:
        raise AssertionError(reason)


def begin(driver: Driver) -> dict[int, Remembered]:
    """Let the server begin with three clients."""
    sessions = {k: Remembered() for k in range(3)}
    driver.begin()
    for k, session in sessions.items():
        driver.deliver(ClientConnected(k, session, 1, now=driver.now()))
    return sessions


def answer(driver: Driver, k: int, session: Remembered) -> None:
    token = driver.node.verify_token(k, session.token)
    update = Update(np.ones(8, np.float32), token.age, token.version)
    driver.deliver(UpdateReceived(k, token.number, update, now=driver.now()))


@pytest.mark.parametrize("algorithm", ["fedavg", "fedasync"])
def test_no_answer_with_a_large_model_is_worked_on_in_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, algorithm: str
) -> None:
    """FedAvg's answers cost a pass over the vector each, not only the last of a round."""
    monkeypatch.setattr(module, "IN_A_THREAD", 1)
    threads: list[tuple[str, str]] = []

    async def scene() -> None:
        driver = make_driver(tmp_path, table(algorithm), min_clients=3)
        sessions = begin(driver)
        kind = type(driver.node.server)
        handle = kind.handle

        def noted(server: Server, sender: int, message: object) -> object:
            threads.append((type(message).__name__, threading.current_thread().name.partition("_")[0]))
            return handle(server, sender, message)  # type: ignore[arg-type]

        monkeypatch.setattr(kind, "handle", noted)
        for k, session in sessions.items():
            answer(driver, k, session)
        driver.deliver(ClientLeft(2, sessions[2], now=driver.now()))
        await driver.settle()
        assert not driver.failed.done()
        assert driver.recorder.updates == 3
        driver.close()

    asyncio.run(scene())
    assert threads == [("Update", "mix")] * 3 + [("Leave", "mix")]


def test_a_snapshot_waits_for_the_message_that_is_being_handled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "IN_A_THREAD", 1)

    async def scene() -> None:
        driver = make_driver(tmp_path, min_clients=3)
        sessions = begin(driver)
        answer(driver, 0, sessions[0])
        assert driver.node.handling
        assert (await driver.snapshot()).any(), "the model from before the update"
        await driver.settle()
        driver.close()

    asyncio.run(scene())


def test_who_waits_for_a_snapshot_is_told_if_the_server_fails_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "IN_A_THREAD", 1)
    going_on = threading.Event()

    async def scene() -> None:
        driver = make_driver(tmp_path, min_clients=3)
        sessions = begin(driver)

        def fails(server: Server, sender: int, message: object) -> None:
            going_on.wait(200)
            raise ArithmeticError("no such model")

        monkeypatch.setattr(type(driver.node.server), "handle", fails)
        answer(driver, 0, sessions[0])
        waiting = asyncio.create_task(driver.snapshot())
        await asyncio.sleep(0)
        going_on.set()
        with pytest.raises(ArithmeticError, match="no such model"):
            async with asyncio.timeout(120):
                await waiting
        await driver.settle()  # which does not wait for what never comes, either
        driver.close()

    asyncio.run(scene())


def test_a_full_disk_is_tried_again_when_the_timer_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> int:
        driver = make_driver(tmp_path, min_clients=3, save_retry=0.2)
        tries = []
        save = driver.checkpoints.save

        def full(numbers: object, vectors: object) -> int:
            tries.append(asyncio)
            if len(tries) < 3:
                raise OSError(28, "No space left on device")
            return save(numbers, vectors)  # type: ignore[arg-type]

        monkeypatch.setattr(driver.checkpoints, "save", full)
        sessions = begin(driver)
        answer(driver, 0, sessions[0])
        async with asyncio.timeout(120):
            await driver.settle()
        assert driver.node.saved_version == 1
        driver.close()
        return len(tries)

    assert asyncio.run(scene()) <= 4, "a disk that is full is not asked a hundred times a second"


def test_a_server_that_cannot_be_made_ends_the_process(tmp_path: Path) -> None:
    """It is no fault of the client that comes, and waiting for others would not help."""

    def fails(roster: object) -> Server:
        raise ArithmeticError("no such algorithm")

    async def scene() -> None:
        driver = make_driver(tmp_path)
        driver.node._build = fails
        driver.begin()
        driver.deliver(ClientConnected(0, Remembered(), 1, now=driver.now()))
        with pytest.raises(ArithmeticError):
            driver.failed.result()
        driver.close()

    asyncio.run(scene())


@pytest.mark.parametrize("algorithm", [name for name, kind in ALGORITHMS.items() if kind.uses_token])
def test_the_metric_follows_the_token_from_server_to_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, algorithm: str
) -> None:
    async def scene() -> None:
        drivers = [make_driver(tmp_path / str(i), table(algorithm, (1, 1)), server=i) for i in range(2)]
        sent = [0, 0]
        sessions = [Remembered(), Remembered()]
        holders: list[list[int]] = []
        for k, driver in enumerate(drivers):
            monkeypatch.setattr(driver, "now", lambda: 1.0)  # so that no lease expires
            driver.begin()
            driver.deliver(ClientConnected(k, sessions[k], 1, now=1.0))
            driver.deliver(PeerConnected(1 - k, drivers[1 - k].node.handshake(k), 0, 1.0, now=1.0))
        for _ in range(60):
            for k, driver in enumerate(drivers):
                answer(driver, k, sessions[k])
                await driver.settle()
                while (entry := driver.node.next_for(1 - k, sent[k])) is not None:
                    sent[k] = entry.sequence
                    peer = drivers[1 - k]
                    peer.deliver(PeerMessageReceived(k, entry.sequence, entry.message, now=1.0))
                    await peer.settle()
                gauges = [
                    d.metrics.registry.get_sample_value("spyker_token_held", {"server": str(i)})
                    for i, d in enumerate(drivers)
                ]
                assert gauges == [d.node.server is not None and d.node.server.has_token for d in drivers]
                holders.append([i for i, held in enumerate(gauges) if held])
        assert {*map(tuple, holders)} >= {(0,), (1,)}, "it was at one server, and then at the other"
        for driver in drivers:
            driver.close()

    asyncio.run(scene())
