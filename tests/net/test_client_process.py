"""Client processes: what becomes of one whose clients fail."""

import os
import signal
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from deployment import Deployed, deployed, table, until

from spyker.net.checkpoints import latest


@pytest.fixture(autouse=True)
def find_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """For the processes, too."""
    helpers = str(Path(__file__).parents[1] / "helpers")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([helpers, os.environ.get("PYTHONPATH", "")]))


def begin(folder: Path, algorithm: str, *, trivial: bool) -> AbstractContextManager[Deployed]:
    task = {"name": "failing_task:make", "trivial": trivial}
    return deployed(table(algorithm, task=task), folder, min_clients=3, client_timeout=600.0)


@pytest.mark.parametrize(("trivial", "paced"), [(False, True), (True, False)])
def test_a_client_whose_training_fails_leaves_and_is_told_at_once(tmp_path: Path, trivial: bool, paced: bool) -> None:
    with begin(tmp_path, "fedavg", trivial=trivial) as deployment:
        server = deployment.up()
        deployment.paced = paced
        process = deployment.attend("0-2")
        (failed,) = until(lambda: deployment.log("clients-0-2", "training-failed"))
        assert failed["client"] == 1
        assert "the data of this client is damaged" in failed["error"]
        assert "failing_task.py" in failed["traceback"]
        assert "in train" in failed["traceback"]

        def later() -> bool:
            """A round of FedAvg waits for all its clients, and nobody has been away for client-timeout."""
            return len([fact for fact in deployment.facts("update") if fact["client"] != 1]) >= 20

        until(later)
        assert process.poll() is None, "the others go on"
        server.send_signal(signal.SIGTERM)
        assert server.wait(200) == 0
        process.send_signal(signal.SIGTERM)
        assert process.wait(200) == 1
        last = (tmp_path / "clients-0-2.log").read_text().splitlines()[-1]
        assert last.startswith("spyker: 1 of 3 clients failed. client 1: ")
        assert "the data of this client is damaged" in last


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_clients_that_are_ended_say_goodbye(tmp_path: Path, number: signal.Signals, code: int) -> None:
    with deployed(table(), tmp_path, client_timeout=600.0) as deployment:
        deployment.up()
        process = deployment.attend("0-2")
        until(lambda: len(deployment.log("clients-0-2", "attending")) == 3)
        process.send_signal(number)
        assert process.wait(200) == code
        until(lambda: deployment.metric("connected_clients") == 0)
        assert {line["client"] for line in deployment.log("clients-0-2", "left")} == {0, 1, 2}
        assert not deployment.log("clients-0-2", "disconnected"), "a warning would be about something unexpected"


def test_clients_that_no_server_takes_are_named(tmp_path: Path) -> None:
    with deployed(table(), tmp_path) as deployment:
        deployment.up()
        process = deployment.join("0-2", deployment.addresses, "--set", "seed=5")
        assert process.wait(200) == 1
        last = (tmp_path / "clients-0-2.log").read_text().splitlines()[-1]
        assert last.startswith("spyker: 3 of 3 clients failed. clients 0, 1, 2: ")
        assert "mismatch" in last
        assert {line["client"] for line in deployment.log("clients-0-2", "client-failed")} == {0, 1, 2}


def test_of_two_processes_that_are_one_client_one_stops_and_says_why(tmp_path: Path) -> None:
    with deployed(table(), tmp_path) as deployment:
        deployment.up()
        both = [deployment.attend("0"), deployment.attend("0")]
        until(lambda: any(process.poll() is not None for process in both))
        (ended,) = [process for process in both if process.poll() is not None]
        assert ended.returncode == 1
        said = [line for line in (tmp_path / "clients-0.log").read_text().splitlines() if line.startswith("spyker: ")]
        assert "client 0: another process is this client, too" in said[0]
        assert "Give every process clients of its own" in said[0]
        before = len(deployment.facts("update"))
        until(lambda: len(deployment.facts("update")) > before + 20)
        assert len(said) == 1, "the other goes on"


@pytest.mark.parametrize("paced", [True, False])
def test_a_client_whose_algorithm_fails_is_told_of_as_well(tmp_path: Path, paced: bool) -> None:
    with deployed(table("failing_client:Fails"), tmp_path, min_clients=3) as deployment:
        deployment.up()
        deployment.paced = paced
        process = deployment.attend("0-2")
        (failed,) = until(lambda: deployment.log("clients-0-2", "training-failed"))
        assert failed["client"] == 1
        assert "no difference can be taken" in failed["error"]
        until(lambda: {fact["client"] for fact in deployment.facts("update")} == {0, 2})
        assert process.poll() is None, "the others go on"


def test_a_server_whose_last_evaluation_fails_has_saved_before(tmp_path: Path) -> None:
    scenario = table(task={"name": "failing_client:judge"}, evaluation={"interval": 1e6})
    with deployed(scenario, tmp_path, min_clients=3, duration=1.0, checkpoint_updates=10**6) as deployment:
        server = deployment.up()
        deployment.attend("0-2")
        assert server.wait(200) == 1
        assert "beyond judgement" in (tmp_path / "server-0.log").read_text()
        saved = latest(tmp_path / "server-0" / "state")
        assert saved is not None
        assert saved.numbers["server"]["version"] == len(deployment.facts("update")) > 0
