"""What a run will take is known before it begins."""

from pathlib import Path

import pytest

import spyker
from spyker.api import estimate
from spyker.api.estimate import Estimate, check_models, expected_trainings
from spyker.api.read_scenario import read_scenario
from spyker.cli.main import main
from spyker.errors import UsageError
from spyker.tasks import memory_check

GIB = 2**30


@pytest.mark.parametrize("algorithm", ["stride", "spyker", "fedasync", "fedavg"])
@pytest.mark.parametrize("delays", ["paper", "uneven"])
def test_the_number_of_trainings_is_about_right(tmp_path: Path, algorithm: str, delays: str) -> None:
    settings = {"training.delay-ms": delays}
    scenario = read_scenario(algorithm=algorithm, task="quadratic", clients=40, duration=10, settings=settings)
    run = spyker.run(scenario, out=tmp_path / "a", progress=False, model=False)
    assert 0.5 < run.points.updates[-1] / expected_trainings(scenario, 8) < 1.5


@pytest.mark.parametrize("command", [["run"], ["compare"], ["up"], ["sweep", "--vary", "seed=1,2"]])
def test_a_hundred_million_clients_are_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(memory_check, "machine_bytes", lambda: 16 * GIB)
    assert main([*command, "--task", "mnist", "--clients", "100000000"]) == 2  # before MNIST is looked for
    error = capsys.readouterr().err
    assert "world.clients: adds up to " in error
    assert "GiB of memory, and this machine has 16.0 GiB. Emulate at most 21,474,836 clients at a time" in error
    assert not list(tmp_path.iterdir())


def test_models_that_do_not_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimate, "machine_bytes", lambda: 16 * GIB)
    check_models(100, 25_000_000)
    with pytest.raises(UsageError, match=r"1,000, whose models of 25,000,000 parameters take at least 46\.6 GiB"):
        check_models(1000, 25_000_000)


def test_a_long_run_is_announced_and_not_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ["run", "--task", "digits", "--clients", "8", "--duration", "3", "--workers", "0"]
    assert main([*common, "--out", str(tmp_path / "a"), "--quiet"]) == 0
    monkeypatch.setattr(estimate, "LONG", 0.0)
    assert main([*common, "--out", str(tmp_path / "b")]) == 0
    error = capsys.readouterr().err
    assert "spyker: this takes about " in error
    assert " trainings of " in error
    for name in ("facts.jsonl", "summary.json", "model.safetensors"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_a_quiet_run_and_one_of_few_trainings_need_no_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> tuple[float, float]:
        raise AssertionError("nobody asked")

    monkeypatch.setattr(estimate, "trial", never)
    common = ["run", "--task", "digits", "--clients", "4", "--workers", "0", "--duration"]
    assert main([*common, "1", "--out", str(tmp_path / "a")]) == 0
    assert main([*common, "6", "--out", str(tmp_path / "b"), "--quiet"]) == 0
    with pytest.raises(AssertionError, match="nobody asked"):
        main([*common, "6", "--out", str(tmp_path / "c")])


def test_it_reads_well() -> None:
    text = str(Estimate(48_123, 305, 0.0312, 0.12, 2, 3 * GIB))
    assert text == (
        "this takes about 13 min and up to 3.0 GiB for models: some 48,000 trainings of 31 ms and 300 evaluations of "
        "0.1 s, in 2 processes"
    )


@pytest.mark.parametrize("trainings", [1e12, 3.2e101, float("inf")])
def test_what_takes_more_than_a_year_is_not_counted_in_days(trainings: float) -> None:
    text = str(Estimate(trainings, trainings, 0.1, 0.1, 1, 3 * GIB))
    assert text.startswith("this takes more than a year and up to 3.0 GiB for models: some ")
    assert len(text) < 160
    some = {1e12: "1,000,000,000,000", 3.2e101: "3.2e+101"}.get(trainings, "inf")
    assert f"some {some} trainings of 0.1 s" in text
