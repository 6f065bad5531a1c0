"""Many clients, large models, and those who stop reading."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from deployment import DEADLINE, Deployed, deployed, speaking, table, until

from spyker.net.frames import CHUNK

LARGE = 16 * CHUNK // 4 + 100  # parameters: sixteen chunks and a bit, more than any buffer on the way holds


def stub(clients: int) -> dict[str, Any]:
    """A scenario of large models."""
    return table(clients=(clients,), task={"name": "stub_task:make", "parameters": LARGE})


@pytest.fixture(autouse=True)
def find_the_stub(monkeypatch: pytest.MonkeyPatch) -> None:
    """For the processes, too."""
    helpers = str(Path(__file__).parents[1] / "helpers")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([helpers, os.environ.get("PYTHONPATH", "")]))


def memory(deployment: Deployed) -> float:
    """What a server holds in memory, in MB."""
    status = Path(f"/proc/{deployment.servers[0].pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1000


def test_two_hundred_clients_on_one_server(tmp_path: Path) -> None:
    count = 200
    scenario = table(clients=(count,), training={"rate": 0.5, "delay-ms": [500.0] * count})
    with deployed(scenario, tmp_path, min_clients=count) as deployment:
        server = deployment.up()
        for first in range(0, count, 100):
            deployment.attend(f"{first}-{first + 99}")
        until(lambda: len({fact["client"] for fact in deployment.facts("update")}) == count)
        until(lambda: len(deployment.facts("update")) >= 3 * count)
        assert deployment.metric("connected_clients") == count
        server.send_signal(signal.SIGTERM)
        assert server.wait(200) == 0
        answers = [fact["client"] for fact in deployment.facts("update")]
        assert min(answers.count(k) for k in range(count)) >= 2, "everybody is served"


def test_models_of_many_chunks_pass_unharmed(tmp_path: Path) -> None:
    """Every client sends back what it got, so the model must stay what it was, to the bit."""
    with deployed(stub(2), tmp_path) as deployment:
        server = deployment.up()
        deployment.attend("0-1")
        until(lambda: len(deployment.facts("update")) >= 20)
        server.send_signal(signal.SIGTERM)
        assert server.wait(200) == 0
        assert [fact["mean"] for fact in deployment.facts("evaluation")] == [1.0] * len(deployment.facts("evaluation"))


def read_nothing(deployment: Deployed, silent: int) -> None:
    """So many clients say hello and read nothing, until all of them are disconnected."""

    async def say_hello_and_read_nothing(k: int) -> None:
        async with speaking(deployment, k) as client:
            await client.greet()
            async with asyncio.timeout(DEADLINE):
                while len(deployment.log("server-0", "stalled")) < silent:
                    await asyncio.sleep(0.05)

    async def scene() -> None:
        async with asyncio.TaskGroup() as group:
            for k in range(silent):
                group.create_task(say_hello_and_read_nothing(k))

    asyncio.run(scene())
    assert {entry["client"] for entry in deployment.log("server-0", "stalled")} == set(range(silent))
    served = len(deployment.facts("update"))
    until(lambda: len(deployment.facts("update")) >= served + 10)


def test_clients_that_stop_reading_are_disconnected_and_the_others_served(tmp_path: Path) -> None:
    with deployed(stub(2), tmp_path, stall_timeout=1.0) as deployment:
        deployment.up()
        deployment.attend("1")
        read_nothing(deployment, 1)


@pytest.mark.slow
def test_clients_that_stop_reading_cost_a_bounded_amount_of_memory(tmp_path: Path) -> None:
    silent, honest = 6, 2
    with deployed(stub(silent + honest), tmp_path, stall_timeout=1.0) as deployment:
        deployment.up()
        deployment.attend(f"{silent}-{silent + honest - 1}")
        until(lambda: len(deployment.facts("update")) >= 20)
        before = memory(deployment)
        read_nothing(deployment, silent)
        model = 4 * LARGE / 1e6
        assert memory(deployment) < before + (silent + 3) * model, "at most one model for each of them"


def test_a_server_that_stops_reading_is_left_alone_until_it_comes_back(tmp_path: Path) -> None:
    """The other server serves its own clients meanwhile; then all goes on, and no token is lost."""
    with deployed(table("spyker", (1, 1)), tmp_path, keepalive=0.5, stall_timeout=1.0) as deployment:
        deployment.up(0)
        frozen = deployment.up(1)
        deployment.attend("0-0", 0, more=("--keepalive", "0.5"))
        deployment.attend("1-1", 1, more=("--keepalive", "0.5"))
        until(lambda: len(deployment.facts("merge", 0)) >= 4)
        os.kill(frozen.pid, signal.SIGSTOP)
        try:
            until(lambda: deployment.log("clients-1-1", "disconnected"))
            until(lambda: deployment.log("server-0", "link-down"))
            served = len(deployment.facts("update", 0))
            until(lambda: len(deployment.facts("update", 0)) >= served + 50)
            merged = len(deployment.facts("merge", 0))
        finally:
            os.kill(frozen.pid, signal.SIGCONT)
        until(lambda: len(deployment.facts("merge", 0)) >= merged + 4)
        until(lambda: len(deployment.log("clients-1-1", "attending")) >= 2)
