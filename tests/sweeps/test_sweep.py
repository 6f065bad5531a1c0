import csv
from pathlib import Path

import pytest

from spyker.cli.main import main
from spyker.cli.sweep import split_values
from spyker.errors import UsageError
from spyker.records import RunRecord
from spyker.sweeps.sweep_points import combinations


@pytest.mark.parametrize(
    ("text", "key", "values"),
    [
        ("training.rate=0.1,0.2", "training.rate", [0.1, 0.2]),
        ("algorithm=spyker, fedavg", "algorithm", ["spyker", "fedavg"]),
        ("world.clients=[1,2],[3,4]", "world.clients", [[1, 2], [3, 4]]),
        ('task.name="a,b",c', "task.name", ["a,b", "c"]),
        ("training.delay-ms={mean=1,std=2},paper", "training.delay-ms", [{"mean": 1, "std": 2}, "paper"]),
        ("world.uniform-latency=true,false", "world.uniform-latency", [True, False]),
    ],
)
def test_values_are_separated_by_commas_outside_brackets_and_quotes(text: str, key: str, values: list[object]) -> None:
    assert split_values(text) == (key, values)


@pytest.mark.parametrize("text", ["training.rate", "training.rate=", "=1,2", "training.rate=1,,2"])
def test_values_that_are_missing_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--vary"):
        split_values(text)


def test_all_combinations_the_last_key_fastest() -> None:
    points = combinations({"a": [1, 2], "b": [3, 4]})
    assert points == [{"a": 1, "b": 3}, {"a": 1, "b": 4}, {"a": 2, "b": 3}, {"a": 2, "b": 4}]
    for wrong in ({}, {"a": []}, {"a": "12"}, {"a": 1}):
        with pytest.raises(UsageError, match="--vary"):
            combinations(wrong)  # type: ignore[arg-type]


QUICK = ["sweep", "--task", "quadratic", "--duration", "2", "--clients", "8", "--jobs", "1"]


def test_a_sweep_has_a_line_per_combination_and_seed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "s"
    latencies = "world.latency-ms=" + ",".join(str([[float(ms)] * 4] * 4) for ms in (1, 50))
    vary = ["--vary", "training.rate=0.1,0.5", "--vary", latencies]
    assert main([*QUICK, *vary, "--seeds", "2", "--out", str(out), "--set", "evaluation.targets=[0.2]"]) == 0
    rows = list(csv.DictReader((out / "sweep.csv").open()))
    assert [(r["training.rate"], r["seed"]) for r in rows] == [
        (r, s) for r in ("0.1", "0.5") for _ in "ab" for s in "12"
    ]
    assert float(rows[4]["time to 0.2"]) <= float(rows[0]["time to 0.2"] or "inf")
    assert all(0 < float(r["final covered"]) <= 1 for r in rows)
    for r in rows:
        made = RunRecord(out / r["folder"]).scenario
        assert (made["training"]["rate"], made["seed"]) == (float(r["training.rate"]), int(r["seed"]))
    assert (out / "sweep.png").read_bytes().startswith(b"\x89PNG")
    text = capsys.readouterr().out
    assert all(
        word in text for word in ("sweep.png", "rate", "latency-ms", "time to 0.2", "final covered", "sweep.csv")
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--vary", "training.rate=0.1,x"], "training.rate"),
        (["--vary", "no.such=1"], "no"),
        ([], "--vary"),
        (["--vary", "training.rate=0.1", "--vary", "training.rate=0.2"], "twice"),
        (["--vary", "seed=1", "--seeds", "0"], "--seeds"),
        (["--vary", "seed=1", "--jobs", "0"], "--jobs"),
    ],
)
def test_bad_input_is_refused_before_anything_runs(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*QUICK[:-2], *arguments, "--out", str(tmp_path / "s")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "s").exists()


def test_an_old_folder_is_gone_on_with_only_when_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    arguments = [*QUICK, "--vary", "seed=1", "--out", str(tmp_path)]
    assert main(arguments) == 2
    assert "--resume" in capsys.readouterr().err
    assert main([*arguments, "--resume"]) == 2
    assert "has no runs" in capsys.readouterr().err
    assert [p.name for p in tmp_path.iterdir()] == ["notes.txt"]


def test_combinations_may_diverge_and_differ_in_what_they_measure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "s"
    vary = ["--vary", "training.rate=1e9,0.1", "--vary", "evaluation.targets=[0.2],[0.1]", "--vary", "seed=5"]
    assert main([*QUICK, "--algorithm", "spyker", *vary, "--out", str(out)]) == 0
    assert "diverged" in capsys.readouterr().out
    with (out / "sweep.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["seed"] for row in rows] == ["5"] * 4
    assert [bool(row["time to 0.2"]) for row in rows] == [False, False, True, False]
    assert [bool(row["time to 0.1"]) for row in rows] == [False, False, False, True]
    assert [bool(row["final covered"]) for row in rows] == [False, False, True, True]


def test_folders_that_hold_something_else_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("kept")
    (tmp_path / "other" / "runs").mkdir(parents=True)
    (tmp_path / "other" / "runs" / "notes.txt").write_text("kept")
    for place, complaint in (("file", "is a file"), ("other", "has no runs to continue")):
        assert main([*QUICK, "--vary", "training.rate=0.1", "--out", str(tmp_path / place), "--resume"]) == 2
        assert complaint in capsys.readouterr().err
    assert (tmp_path / "other" / "runs" / "notes.txt").read_text() == "kept"


@pytest.mark.parametrize("changed", ["own_rate.py", "own_help.py", None])
def test_a_task_whose_code_has_changed_is_run_again(
    changed: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_rate.py").write_text(
        "from stub_task import Stub\nimport own_help\ndef make(clients, seed, training):\n    return Stub(own_help.N)\n"
    )
    (tmp_path / "own_help.py").write_text("N = 3\n")
    monkeypatch.chdir(tmp_path)
    arguments = ["sweep", "--task", "own_rate:make", *QUICK[3:], "--vary", "seed=1", "--out", "s"]
    assert main(arguments) == 0
    (run,) = (tmp_path / "s" / "runs").glob("[!.]*")
    if changed is not None:
        with (tmp_path / changed).open("a") as file:
            file.write("N = 4\n")
    assert main([*arguments, "--resume"]) == 0
    runs = set((tmp_path / "s" / "runs").glob("[!.]*"))
    assert run in runs
    assert len(runs) == (1 if changed is None else 2)
