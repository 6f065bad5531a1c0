"""What a run lacks is known before it begins."""

from pathlib import Path

import pytest

import spyker
from spyker.api import run_checks
from spyker.api.read_scenario import read_scenario
from spyker.api.run_checks import check_models
from spyker.cli.main import main
from spyker.errors import UsageError
from spyker.sim.round_times import round_durations
from spyker.tasks import memory_check

GIB = 2**30


@pytest.mark.parametrize("algorithm", ["stride", "spyker", "fedasync", "fedavg"])
@pytest.mark.parametrize("delays", ["paper", "uneven"])
def test_the_durations_of_rounds_are_about_right(tmp_path: Path, algorithm: str, delays: str) -> None:
    settings = {"training.delay-ms": delays}
    scenario = read_scenario(algorithm=algorithm, task="quadratic", clients=40, duration=10, settings=settings)
    run = spyker.run(scenario, out=tmp_path / "a", progress=False, model=False)
    expected = float((scenario.duration / round_durations(scenario, 8)).sum())
    # where servers do not agree, as on random quadratics, Stride's clients wait for exchanges
    assert (0.25 if algorithm == "stride" else 0.5) < run.points.updates[-1] / expected < 1.5


@pytest.mark.parametrize("command", [["run"], ["compare"], ["up"], ["sweep", "--vary", "seed=1,2"]])
def test_a_hundred_million_clients_are_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(memory_check, "machine_bytes", lambda: 16 * GIB)
    assert main([*command, "--task", "mnist", "--clients", "100000000"]) == 2  # before MNIST is looked for
    error = capsys.readouterr().err
    assert "world.clients: " in error
    assert "GiB of memory, and this machine has 16.0 GiB. Emulate at most 21,474,836 clients at a time" in error
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("clients", "note"),
    [
        (1, "spyker: 1 client: the regions Paris, Sydney and California are left out\n"),
        (2, "spyker: 2 clients: the regions Sydney and California are left out\n"),
        (3, "spyker: 3 clients: the region California is left out\n"),
        (4, ""),
    ],
)
def test_regions_without_a_client_are_named_before_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], clients: int, note: str
) -> None:
    arguments = ["--task", "quadratic", "--clients", str(clients), "--duration", "2", "--out", str(tmp_path / "a")]
    assert main(["run", *arguments]) == 0
    said = capsys.readouterr().err
    assert note in said
    assert ("left out" in said) == (clients < 4)


def test_models_that_do_not_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_checks, "machine_bytes", lambda: 16 * GIB)
    check_models(100, 25_000_000)
    with pytest.raises(UsageError, match=r"1,000, whose models of 25,000,000 parameters take at least 46\.6 GiB"):
        check_models(1000, 25_000_000)
