"""A host in this process."""

import asyncio
import threading
from pathlib import Path

import numpy as np
import pytest
from deployment import table
from hosting import make_host

from spyker.deploy import host as module
from spyker.deploy import spyker_pb2 as pb
from spyker.vectors import Vector


class Remembered:
    """The connection of a client that remembers its last task."""

    def __init__(self) -> None:
        self.ticket: pb.Ticket | None = None

    def give(self, body: bytes, weights: Vector | None) -> None:
        frame = pb.Frame.FromString(body)
        if frame.HasField("task"):
            self.ticket = frame.task.ticket

    def close(self, reason: str) -> None:
        raise AssertionError(reason)


@pytest.mark.parametrize("algorithm", ["fedavg", "fedasync"])
def test_no_answer_with_a_large_model_is_worked_on_in_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, algorithm: str
) -> None:
    """FedAvg's answers cost a pass over the vector each, not only the last of a round."""
    monkeypatch.setattr(module, "IN_A_THREAD", 1)
    threads: list[tuple[str, str]] = []

    async def scene() -> None:
        host = make_host(tmp_path, table(algorithm))
        sessions = {k: Remembered() for k in range(3)}
        for k, session in sessions.items():
            host.greet(k, session, 1, None)
        host.start()
        assert host.server is not None
        handle = host.server.handle

        def noted(sender: int, message: object) -> object:
            threads.append((type(message).__name__, threading.current_thread().name.partition("_")[0]))
            return handle(sender, message)  # type: ignore[arg-type]

        monkeypatch.setattr(host.server, "handle", noted)
        for k, session in sessions.items():
            assert session.ticket is not None
            host.answer(k, session.ticket, np.ones(8, np.float32), None)
        del host.sessions[2]
        host.give_up(2)
        await host.settle()
        assert not host.failed.done()
        assert host.tally.updates == 3
        host.close()

    asyncio.run(scene())
    assert threads == [("Update", "mix")] * 3 + [("Leave", "mix")]
