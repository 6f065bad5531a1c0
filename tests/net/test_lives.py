"""Servers and clients that are killed, stopped and started again."""

import asyncio
import contextlib
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from deployment import deployed, speaking, table, until

from spyker.net.checkpoints import latest
from spyker.records import RunRecord
from spyker.records.merge import merge


def test_a_killed_server_goes_on_from_what_it_saved(tmp_path: Path) -> None:
    """Nothing saved is lost, nothing is applied twice, and the count of what was lost is right. Three times."""
    with deployed(table(), tmp_path, checkpoint_updates=20) as deployment:
        server = deployment.up()
        deployment.attend("0-2", more=("--set", "training.delay-ms=[5.0, 5.0, 5.0]"))
        for life in range(1, 4):
            until(lambda enough=90 * life: len(deployment.facts("update")) >= enough)
            server.kill()
            server.wait()
            saved = latest(tmp_path / "server-0" / "state")
            assert saved is not None
            version = saved.numbers["server"]["version"]
            facts = deployment.facts()
            server = deployment.up(0, "--resume")
            resumed = deployment.log("server-0", "server-resumed")[-1]
            assert resumed["version"] == version, "it goes on with what was saved"
            assert resumed["age"] == saved.numbers["server"]["age"]
            since = max((i for i, fact in enumerate(facts) if fact["kind"] == "server-resumed"), default=-1)
            applied = [fact["version"] for fact in facts[since + 1 :] if fact["kind"] == "update"]
            assert resumed["lost_updates"] == sum(v > version for v in applied), (
                "what was applied and not saved is counted"
            )
            assert 0 <= resumed["lost_updates"] < 60
        until(lambda: len(deployment.facts("update")) >= 400)
        score = deployment.metric("score")
        assert score in [entry["score"] for entry in deployment.log("server-0", "evaluation")]
        server.send_signal(signal.SIGTERM)
        assert server.wait(200) == 0
        check_exactly_once(deployment.facts())
        merge([deployment.record(0)], tmp_path / "merged")
    run = RunRecord(tmp_path / "merged")
    held = [update.version for _, update, _ in run.updates()]
    assert run.summary is not None
    assert held == list(range(1, run.summary["updates"] + 1)), "what was lost does not count in the merged record"
    times = [stated.t for stated in run.facts()]
    assert times == sorted(times)


def check_exactly_once(facts: list[dict]) -> None:
    """Follow a record over all lives of its server: versions have no gap and no repetition, but for what was lost."""
    version, kept = 0, []
    for fact in facts:
        if fact["kind"] == "update":
            assert fact["version"] == version + 1
            version += 1
            kept.append(fact)
        elif fact["kind"] == "server-resumed":
            assert sum(update["version"] > fact["version"] for update in kept) == fact["lost_updates"]
            kept = [update for update in kept if update["version"] <= fact["version"]]
            version = fact["version"]
    assert [update["version"] for update in kept] == list(range(1, version + 1))


def test_an_answer_that_was_saved_is_not_applied_again(tmp_path: Path) -> None:
    """A client offers its answer to the next life of the server, which takes it if it is news, and only then."""
    with deployed(table(), tmp_path, checkpoint_updates=1) as deployment:
        server = deployment.up()

        async def before() -> tuple:
            async with speaking(deployment, 0) as saved, speaking(deployment, 1) as lost:
                one, other = await saved.enter(), await lost.enter()
                await saved.answer(one.token)
                version = (await saved.task()).said.version
                until(lambda: deployment.metric("saved_version") >= version)
                return one.token, other.token

        one, other = asyncio.run(before())
        server.kill()
        server.wait()
        deployment.up(0, "--resume")

        async def after() -> None:
            async with speaking(deployment, 0) as client:
                client.hello.held_tokens[:] = [one]
                await client.greet()
                assert not (await client.read()).welcome.keep, "it was applied and saved"
                assert (await client.task()).said.version == 1
                await client.answer(one)
                assert (await client.rejection())[1].startswith("replayed")
            async with speaking(deployment, 1) as client:
                client.hello.held_tokens[:] = [other]
                await client.greet()
                assert (await client.read()).welcome.keep, "its task was given in an earlier life, and never answered"
                await client.answer(other)
                assert (await client.task()).said.version == 2

        asyncio.run(after())


def test_sigterm_drains(tmp_path: Path) -> None:
    """The server saves what it has applied, tells its clients and exits with 0; they come back to its next life."""
    with deployed(table(), tmp_path, checkpoint_updates=10**6, checkpoint_seconds=1000.0) as deployment:
        server = deployment.up()
        clients = deployment.attend("0-2")
        until(lambda: len(deployment.facts("update")) >= 30)
        server.send_signal(signal.SIGTERM)
        assert server.wait(200) == 0
        applied = deployment.facts("update")[-1]["version"]
        saved = latest(tmp_path / "server-0" / "state")
        assert saved is not None
        assert saved.numbers["server"]["version"] == applied
        assert [e["saved_version"] for e in deployment.log("clients-0-2", "goodbye")] == [applied] * 3
        deployment.up(0, "--resume")
        assert deployment.log("server-0", "server-resumed")[-1]["lost_updates"] == 0
        until(lambda: len(deployment.facts("update")) >= applied + 30)
        assert clients.poll() is None
        check_exactly_once(deployment.facts())


def test_a_training_in_progress_survives_a_restart_of_the_server(tmp_path: Path) -> None:
    scenario = table(clients=(1,), training={"rate": 0.5, "delay-ms": [2000.0]})
    with deployed(scenario, tmp_path, checkpoint_updates=1) as deployment:
        server = deployment.up()
        deployment.attend("0-0")
        until(lambda: deployment.log("server-0", "started") and latest(tmp_path / "server-0" / "state"))
        until(lambda: deployment.metric("sent_messages_total", kind="model"))
        server.kill()
        server.wait()
        deployment.up(0, "--resume")
        until(lambda: len(deployment.log("clients-0-0", "attending")) == 2)
        assert deployment.log("clients-0-0", "attending")[1]["kept"]
        [update] = until(lambda: deployment.facts("update"))
        assert update["staleness"] == 0


def test_state_is_not_overwritten_by_accident(tmp_path: Path) -> None:
    with deployed(table(), tmp_path) as deployment:
        server = deployment.up()
        deployment.attend("0-0")
        until(lambda: deployment.metric("saved_version") >= 0 and deployment.facts("update"))
        server.send_signal(signal.SIGTERM)
        server.wait()
        again = deployment.serve(0)
        assert again.wait(200) == 2
        assert "--resume" in (tmp_path / "server-0.log").read_text()


@pytest.mark.parametrize(
    "algorithm",
    ["stride", *(pytest.param(name, marks=pytest.mark.slow) for name in ("spyker", "sync-spyker", "hierfavg"))],
)
def test_a_killed_server_does_not_stop_the_others_for_ever(tmp_path: Path, algorithm: str) -> None:
    """The token and the models that servers wait for outlive a kill in mid-synchronisation: exactly once each."""
    with deployed(table(algorithm, (2, 2)), tmp_path) as deployment:
        servers = [deployment.up(i) for i in range(len(deployment.addresses))]
        deployment.attend("0-1", 0)
        deployment.attend("2-3", 1)
        kind = "cloud-round" if algorithm == "hierfavg" else "merge"
        last = len(servers) - 1

        def synchronised(more: int, before: int = 0) -> int:
            return until(lambda: (n := len(deployment.facts(kind, last))) >= before + more and n)

        count = synchronised(3)
        for victim in (1, 0):
            servers[victim].kill()
            servers[victim].wait()
            servers[victim] = deployment.up(victim, "--resume")
            count = synchronised(4, count)
        for server in servers:
            server.send_signal(signal.SIGTERM)
        assert [server.wait(200) for server in servers] == [0] * len(servers)
        for i in range(2):
            check_exactly_once(deployment.facts(server=i))
        if algorithm in ("stride", "spyker"):
            check_one_token([deployment.facts("token", i) + deployment.facts("sync", i) for i in range(2)])


def check_one_token(facts: list[list[dict]]) -> None:
    """No synchronisation was started by two servers: there was never more than one token."""
    started = [{fact["bid"] for fact in mine if fact["kind"] == "sync"} for mine in facts]
    assert not started[0] & started[1]
    assert started[0] | started[1]  # Stride's other exchanges need no token


@pytest.mark.parametrize("algorithm", [pytest.param("fedasync", marks=pytest.mark.slow), "fedavg"])
def test_a_client_killed_in_training_is_not_waited_for(tmp_path: Path, algorithm: str) -> None:
    scenario = table(algorithm, training={"rate": 0.5, "delay-ms": [10.0, 10.0, 60_000.0]})
    with deployed(scenario, tmp_path, min_clients=3, client_timeout=0.5) as deployment:
        deployment.up()
        deployment.attend("0-1")
        slow = deployment.attend("2-2")
        until(lambda: deployment.log("server-0", "started"))
        slow.kill()
        slow.wait()
        until(lambda: deployment.metric("connected_clients") == 2)
        before = len(deployment.facts("update"))
        until(lambda: len(deployment.facts("update")) >= before + 20)
        assert all(fact["client"] != 2 for fact in deployment.facts("update"))


@pytest.mark.slow
def test_a_client_attends_the_nearest_server_turns_to_another_and_returns(tmp_path: Path) -> None:
    with deployed(table("spyker", (1, 1)), tmp_path) as deployment, delayed(deployment.addresses[1], 0.03) as far:
        near, _ = deployment.up(0), deployment.up(1)
        deployment.addresses[1] = far
        client = deployment.attend("0-0", 1, 0, more=("--patience", "0.3", "--return-after", "0.2"))

        def attended() -> list[int]:
            return [entry["server"] for entry in deployment.log("clients-0-0", "attending")]

        until(lambda: len(deployment.facts("update", 0)) > 5)
        assert attended() == [0], "the nearest, though it is the last in the list"
        near.kill()
        near.wait()
        until(lambda: len(deployment.facts("update", 1)) > 5)
        assert attended() == [0, 1]
        deployment.up(0, "--resume")
        until(lambda: attended() == [0, 1, 0])
        assert client.poll() is None


@contextlib.contextmanager
def delayed(address: str, seconds: float) -> Iterator[str]:
    """Another address for the same port, where everything takes so much longer in each direction."""
    host, _, port = address.rpartition(":")
    loop = asyncio.new_event_loop()
    opened: asyncio.Future[str] = loop.create_future()

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                loop.call_later(seconds, writer.write, data)
        writer.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection(host, int(port))
        await asyncio.gather(pass_on(reader, there[1]), pass_on(there[0], writer))

    async def run() -> None:
        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        opened.set_result(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")

    loop.run_until_complete(run())
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield opened.result()
    finally:
        for task in asyncio.all_tasks(loop):
            loop.call_soon_threadsafe(task.cancel)
        loop.call_soon_threadsafe(loop.call_later, 0.05, loop.stop)
        thread.join()


def test_what_a_killed_server_had_to_tell_is_told_after_its_restart(tmp_path: Path) -> None:
    """Server 0 begins a synchronisation while server 2 is not there yet, and is killed with its model in the outbox."""
    with deployed(table("spyker", (1, 1, 1)), tmp_path) as deployment:
        server = deployment.up(0)
        deployment.up(1)
        deployment.attend("0-0", 0)
        deployment.attend("1-1", 1)

        def waiting() -> list:
            saved = latest(tmp_path / "server-0" / "state")
            return saved.numbers["outboxes"]["2"]["entries"] if saved is not None else []

        kept = until(waiting)
        assert "peer-model" in [packed["message"] for _, packed in kept]
        server.kill()
        server.wait()
        deployment.up(0, "--resume")
        deployment.up(2)
        deployment.attend("2-2", 2)
        until(lambda: [fact for fact in deployment.facts("merge", 2) if fact["peer"] == 0])
        until(lambda: [fact for fact in deployment.facts("merge", 0) if fact["peer"] == 2])
