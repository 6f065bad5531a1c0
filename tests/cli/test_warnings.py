"""A run that learns nothing says so: before it, where that is known, and after it."""

import json
from pathlib import Path

import pytest

import spyker
from spyker.cli.main import main

FEW = ["--task", "quadratic", "--clients", "4", "--duration", "2", "--workers", "0"]
SLOW = ["--set", "world.bandwidth-mbit=0.0001"]  # 8 weights take 2.56 s
FAULTY = ["--task", "helpers.faulty_task:make", "--set", "task.raising=[2]", "--clients", "4", "--duration", "2"]


def warned(folder: Path) -> list[str]:
    summary = json.loads((folder / "summary.json").read_text())
    return [warning["kind"] for warning in summary.get("warnings", ())]


def test_a_run_that_learns_has_nothing_to_say(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", *FEW, "--set", "training.rate=0.2", "--out", str(tmp_path / "a")]) == 0
    said = capsys.readouterr()
    assert "warning" not in said.out + said.err
    assert "warnings" not in json.loads((tmp_path / "a" / "summary.json").read_text())
    assert spyker.load(tmp_path / "a").warnings == []  # type: ignore[union-attr]


def test_links_too_slow_for_an_update_are_said_before_and_after(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "a"
    assert main(["run", *FEW, *SLOW, "--out", str(out)]) == 0
    said = capsys.readouterr()
    assert (
        "spyker: warning: links, not training, set the pace: sending the model (3.2e-05 MB at 0.0001 Mbit/s) "
        in said.err
    )
    assert "spyker: warning: Stride: no client finishes a single round in 2 s, because a round takes 5." in said.err
    assert "warning (no-updates): no client update arrived in 2 s: a round takes 5." in said.out
    assert "warning (slow-links): links, not training, set the pace" in said.out
    assert warned(out) == ["no-updates", "slow-links"]
    run = spyker.run(task="quadratic", clients=4, duration=2, out=tmp_path / "b", progress=False)
    assert run.warnings == []
    assert [each.kind for each in spyker.load(out).warnings] == ["no-updates", "slow-links"]  # type: ignore[union-attr]


def test_nothing_is_said_before_a_quiet_run_and_only_its_warnings_after_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *FEW, *SLOW, "--quiet", "--out", str(tmp_path / "a")]) == 0
    said = capsys.readouterr()
    assert said.out == ""
    kinds = [line.partition(":")[2].partition(":")[0] for line in said.err.splitlines()]
    assert kinds == [" warning (no-updates)", " warning (slow-links)"]
    assert warned(tmp_path / "a") == ["no-updates", "slow-links"]
    assert main(["run", *FEW, *SLOW, "--quiet", "--json", "--out", str(tmp_path / "b")]) == 0
    assert capsys.readouterr().err == ""


def test_the_runs_of_a_comparison_that_learn_nothing_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    still = ["--algorithms", "spyker,fedasync", "--set", "training.rate=1e-9"]
    assert main(["compare", *FEW, *still, "--out", str(tmp_path / "a")]) == 0
    said = capsys.readouterr().out
    assert "warning (no-progress) in spyker and fedasync: in the first, the run learnt next to nothing: " in said
    assert main(["compare", *FEW, *still, "--json", "--out", str(tmp_path / "b")]) == 0
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert [[each["kind"] for each in run["warnings"]] for run in runs] == [["no-progress"]] * 2


def test_the_runs_of_a_sweep_that_learn_nothing_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    few = [each for each in FEW if each not in ("--workers", "0")]
    assert main(["sweep", *few, "--vary", "training.rate=1e-9,0.2", "--jobs", "1", "--out", str(tmp_path / "a")]) == 0
    said = capsys.readouterr().out
    assert "warning (no-progress) in rate=1e-09: the run learnt next to nothing: " in said


def test_a_client_that_fails_is_named_while_the_run_goes_on_and_after_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *FAULTY, "--out", str(tmp_path / "a")]) == 0
    said = capsys.readouterr()
    (line,) = [line for line in said.err.splitlines() if "warning" in line]
    assert line.startswith("spyker: warning: client 2 failed at t = 0.")
    assert line.endswith(" s and is excluded: ValueError: the data of client 2 is damaged")
    assert "warning (failed clients): 1 of 4 clients failed and left the run, client 2 at 0." in said.out


def test_a_run_that_stops_at_a_failure_does_not_say_that_it_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    diverging = [each.replace("raising", "diverging") for each in FAULTY]
    stop = ["--set", "training.on-client-error=stop"]
    assert main(["run", *diverging, *stop, "--out", str(tmp_path / "a")]) == 1
    said = capsys.readouterr().err
    assert "First at client 2" in said
    assert "is excluded" not in said


def test_many_failures_are_not_many_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    many = ["--set", f"task.raising={list(range(10))}", "--clients", "12"]
    assert main(["run", *FAULTY, *many, "--out", str(tmp_path / "a")]) == 0
    said = capsys.readouterr()
    assert said.err.count("is excluded: ") == 3
    assert said.err.count("summary.json names all of them") == 1
    assert "10 of 12 clients failed and left the run, client " in said.out
    assert "and 5 more. The first: ValueError" in said.out


def test_a_run_that_began_from_a_good_model_need_not_improve(tmp_path: Path) -> None:
    settings = {"training.rate": 0.02}
    spyker.run(task="quadratic", clients=4, duration=8, settings=settings, out=tmp_path / "a", progress=False)
    model = tmp_path / "a" / "model.safetensors"
    again = {"task": "quadratic", "clients": 4, "duration": 2, "out": tmp_path / "b", "progress": False}
    assert spyker.run(**again, initial_model=model, settings=settings).warnings == []


def test_a_run_that_was_ended_early_is_not_said_to_have_learnt_nothing(tmp_path: Path) -> None:
    run = spyker.run(
        task="quadratic",
        clients=4,
        duration=9,
        settings={"training.rate": 1e-9},
        callbacks=[lambda t, fact: t > 1],
        out=tmp_path / "a",
        progress=False,
    )
    assert not run.finished
    assert run.warnings == []
