"""An algorithm that is one file outside the package: in the emulated world, in a deployment, killed, in every table."""

import importlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from deployment import deployed, table, until

import spyker
from spyker.deploy.checkpoints import latest
from spyker.protocol.facts import RoundEnded, UpdateApplied
from spyker.protocol.messages import Model, ToClient, ToServer, Update
from spyker.protocol.server import Server, Setup
from spyker.records import RunRecord

EXAMPLES = Path(__file__).parents[2] / "examples"
SPYKER = [sys.executable, "-m", "spyker"]
NAME = "fedbuff:FedBuff"


@pytest.fixture(autouse=True)
def found(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if everything ran in the folder of the examples."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    root = str(Path(spyker.__file__).parents[1])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(EXAMPLES), root)))


def make(**parameters: float) -> Server:
    module = importlib.import_module("fedbuff")
    setup = Setup(1, 2, np.zeros(2, np.float32), 0.1, module.FedBuffParameters(**parameters))
    return module.FedBuff(0, setup, {0: 1, 1: 1})


def answer(server: Server, client: int, *difference: float, age: float = 0.0) -> list:
    actions = server.handle(client, Update(np.array(difference, np.float32), age, 0))
    return [getattr(action, "fact", action) for action in actions]


def test_it_is_small() -> None:
    assert len((EXAMPLES / "fedbuff.py").read_text().splitlines()) <= 100


def test_the_model_moves_by_the_mean_of_k_differences_each_weighed_by_its_staleness() -> None:
    server = make(buffer=2, server_rate=0.5, staleness_exponent=1.0)
    first, given = answer(server, 0, 4, 0)
    assert isinstance(first, UpdateApplied)
    assert isinstance(given, ToClient)
    assert isinstance(given.message, Model)
    assert given.message.weights.tolist() == [0, 0], "it is answered at once, with the model as it is"
    _, moved, given = answer(server, 1, 0, 8)
    assert isinstance(moved, RoundEnded)
    assert given.message.weights.tolist() == [1, 2], "0.5 / 2 · ((4, 0) + (0, 8))"
    answer(server, 0, 8, 0, age=0.0)  # one step old: half of it counts
    *_, given = answer(server, 1, 4, 4, age=1.0)
    assert given.message.weights.tolist() == [3, 3], "(1, 2) + 0.5 / 2 · (½ · (8, 0) + (4, 4))"


def test_an_answer_to_a_model_that_a_crash_took_back_counts_as_fresh() -> None:
    fact, _ = answer(make(buffer=2, staleness_exponent=0.5), 0, 1, 0, age=1.0)
    assert (fact.staleness, fact.weight) == (0.0, 1.0)


def test_a_client_answers_with_how_far_it_came() -> None:
    client = importlib.import_module("fedbuff").Difference(3, 0)
    client.handle(0, Model(np.array([1, 2], np.float32), 5.0, 6, 0.1))
    (action,) = client.trained(np.array([4, 4], np.float32))
    assert isinstance(action, ToServer)
    assert (action.message.weights.tolist(), action.message.age) == ([3, 2], 5.0)


def test_it_stands_in_every_table_and_plot(tmp_path: Path) -> None:
    """Beside a built-in one, with a parameter of its own, by a command in another process."""
    out = tmp_path / "compared"
    command = [*SPYKER, "compare", "--algorithms", f"fedasync,{NAME}", "--set", "fedbuff.buffer=4"]
    command += ["--task", "quadratic", "--duration", "4", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=EXAMPLES)
    assert done.returncode == 0, done.stderr
    assert "FedBuff" in done.stdout
    assert "| FedBuff |" in (out / "table.md").read_text()
    run = RunRecord(out / "fedbuff")
    assert run.summary is not None
    assert run.summary["final"]["mean"] > 0.3
    assert run.scenario["fedbuff"]["buffer"] == 4
    drawn = subprocess.run([*SPYKER, "plot", str(out)], capture_output=True, text=True, timeout=60)
    assert drawn.returncode == 0, drawn.stderr
    swept = ["sweep", "--vary", f"algorithm={NAME}", "--vary", "fedbuff.buffer=1,8", "--task", "quadratic"]
    swept += ["--duration", "1", "--out", str(tmp_path / "swept")]
    done = subprocess.run([*SPYKER, *swept], capture_output=True, text=True, timeout=60, cwd=EXAMPLES)
    assert done.returncode == 0, done.stderr


def test_a_parameter_that_it_does_not_have_is_refused() -> None:
    command = [*SPYKER, "run", "--algorithm", NAME, "--set", "fedbuff.bufer=4"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=EXAMPLES)
    assert done.returncode == 2
    assert "fedbuff.bufer: unknown key. Did you mean 'buffer'?" in done.stderr


def test_it_is_deployed(tmp_path: Path) -> None:
    out = tmp_path / "record"
    command = [*SPYKER, "up", "--algorithm", NAME, "--task", "quadratic", "--clients", "4", "--duration", "3"]
    done = subprocess.run([*command, "--out", str(out)], capture_output=True, text=True, timeout=90, cwd=EXAMPLES)
    assert done.returncode == 0, done.stderr
    summary = RunRecord(out).summary
    assert summary is not None
    assert summary["title"] == "FedBuff"
    assert min(summary["updates_per_client"]) > 0


def test_it_survives_the_death_of_its_server(tmp_path: Path) -> None:
    with deployed(table(NAME, fedbuff={"buffer": 7}), tmp_path, checkpoint_updates=20) as deployment:
        server = deployment.up()
        deployment.attend("0-2")
        until(lambda: len(deployment.facts("update")) >= 60)
        server.kill()
        server.wait()
        saved = latest(tmp_path / "server-0" / "state")
        assert saved is not None
        server = deployment.up(0, "--resume")
        resumed = deployment.log("server-0", "resumed")[-1]
        assert resumed["version"] == saved.numbers["server"]["version"] > 0
        before = saved.numbers["server"]
        assert before["count"] == before["version"] % 7, "what it has collected so far is saved with it"
        until(lambda: len(deployment.facts("update")) >= 120)
        server.send_signal(signal.SIGTERM)
        assert server.wait(20) == 0
        held = [update.version for _, update, _ in RunRecord(deployment.record(0)).updates()]
        assert held == list(range(1, len(held) + 1)), "none is lost that was saved, and none counts twice"
