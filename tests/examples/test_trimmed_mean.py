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
from spyker.cli.main import main
from spyker.net.checkpoints import latest
from spyker.protocol.messages import Join, Update
from spyker.protocol.server import Server, Setup
from spyker.records import RunRecord

EXAMPLES = Path(__file__).parents[2] / "examples"
SPYKER = [sys.executable, "-m", "spyker"]
NAME = "trimmed_mean:TrimmedMean"


@pytest.fixture(autouse=True)
def found(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if everything ran in the folder of the examples."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    root = str(Path(spyker.__file__).parents[1])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(EXAMPLES), root)))


def make(clients: int = 5, **parameters: float) -> Server:
    module = importlib.import_module("trimmed_mean")
    setup = Setup(1, clients, np.zeros(2, np.float32), 0.1, module.TrimmedMeanParameters(**parameters))
    server = module.TrimmedMean(0, setup, dict.fromkeys(range(clients), 1))
    list(server.start())
    return server


def play(server: Server, *answers: tuple[float, float]) -> list[float]:
    """A round: each client answers. The model afterwards."""
    version = server.version
    for client, weights in enumerate(answers):
        server.handle(client, Update(np.array(weights, np.float32), 0.0, version))
    return server.weights.snapshot().tolist()


def test_it_is_small() -> None:
    assert len((EXAMPLES / "trimmed_mean.py").read_text().splitlines()) <= 80


@pytest.mark.parametrize(
    ("trim", "expected"),
    [
        (0.0, [22, 3]),  # (1 + 2 + 3 + 4 + 100) / 5 and (−9 + 2 + 5 + 8 + 9) / 5
        (0.2, [3, 5]),  # one at either end: (2 + 3 + 4) / 3 and (2 + 5 + 8) / 3
        (0.5, [3, 5]),  # the median
    ],
)
def test_the_ends_are_cut_off_weight_by_weight(trim: float, expected: list[float]) -> None:
    answers = (3, -9), (1, 9), (100, 5), (2, 8), (4, 2)
    assert play(make(trim=trim), *answers) == pytest.approx(expected)


def test_the_median_of_an_even_number_is_between_the_middle_two() -> None:
    assert play(make(4, trim=0.5), (1, 0), (2, 0), (4, 0), (9, 0)) == [3, 0]
    assert play(make(1, trim=0.5), (7, 7)) == [7, 7], "who is alone is believed"


def test_a_round_has_nothing_of_an_earlier_one_and_no_client_more_than_its_share() -> None:
    server = make(2)
    play(server, (1, 1), (3, 3))
    assert play(server, (5, 5), (7, 7)) == [6, 6]
    server.handle(9, Join(1000))
    play(server, (1, 1), (1, 1))
    assert set(server.shares.values()) == {1 / 3}  # type: ignore[attr-defined]


def test_an_answer_of_another_round_is_not_kept() -> None:
    server = make(2)
    server.handle(0, Update(np.full(2, 1e6, np.float32), 0.0, 77))
    assert play(server, (1, 1), (3, 3)) == [2, 2]


def test_it_stands_in_every_table_and_plot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Beside a built-in one, with a parameter of its own."""
    monkeypatch.chdir(EXAMPLES)
    out, quick = tmp_path / "compared", ["--task", "quadratic"]
    compared = ["--algorithms", f"fedavg,{NAME}", "--set", "trimmedmean.trim=0.2", "--duration", "4"]
    assert main(["compare", *compared, *quick, "--out", str(out)]) == 0
    assert "TrimmedMean" in capsys.readouterr().out
    assert "| TrimmedMean |" in (out / "table.md").read_text()
    run = RunRecord(out / "trimmedmean")
    assert run.summary is not None
    assert run.summary["final"]["mean"] > 0.3
    assert run.scenario["trimmedmean"]["trim"] == 0.2
    assert main(["plot", str(out)]) == 0
    swept = ["--vary", f"algorithm={NAME}", "--vary", "trimmedmean.trim=0,0.5", "--duration", "1"]
    assert main(["sweep", *swept, *quick, "--jobs", "1", "--out", str(tmp_path / "swept")]) == 0


def test_a_parameter_that_it_does_not_have_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--algorithm", NAME, "--set", "trimmedmean.trimm=0.2"]) == 2
    assert "trimmedmean.trimm: unknown key. Did you mean 'trim'?" in capsys.readouterr().err


def test_it_is_deployed(tmp_path: Path) -> None:
    out = tmp_path / "record"
    command = [*SPYKER, "up", "--algorithm", NAME, "--task", "quadratic", "--clients", "2", "--duration", "2"]
    command += ["--set", 'world.regions=["Paris"]']
    done = subprocess.run([*command, "--out", str(out)], capture_output=True, text=True, timeout=200, cwd=EXAMPLES)
    assert done.returncode == 0, done.stderr
    summary = RunRecord(out).summary
    assert summary is not None
    assert summary["title"] == "TrimmedMean"
    assert min(summary["updates_per_client"]) > 0


def test_it_survives_the_death_of_its_server(tmp_path: Path) -> None:
    with deployed(table(NAME), tmp_path, checkpoint_updates=20) as deployment:
        server = deployment.up()
        deployment.attend("0-2")
        until(lambda: len(deployment.facts("update")) >= 60)
        server.kill()
        server.wait()
        saved = latest(tmp_path / "server-0" / "state")
        assert saved is not None
        server = deployment.up(0, "--resume")
        resumed = deployment.log("server-0", "server-resumed")[-1]
        assert resumed["version"] == saved.numbers["server"]["version"] > 0
        before = saved.numbers["server"]
        assert len(before["answers"]) == len(before["answered"]), "what it has collected so far is saved with it"
        until(lambda: len(deployment.facts("update")) >= 120)
        server.send_signal(signal.SIGTERM)
        assert server.wait(200) == 0
        held = [update.version for _, update, _ in RunRecord(deployment.record(0)).updates()]
        assert held == list(range(1, len(held) + 1)), "none is lost that was saved, and none counts twice"
