"""The commands as people use them: real processes, exit codes, files."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
from recording import judged, started, write

from spyker import __version__
from spyker.algorithms.builtin import COMPARED
from spyker.cli.main import main
from spyker.records import Evaluated, RunRecord

SPYKER = [sys.executable, "-m", "spyker.cli.main"]
QUICK = ["--task", "quadratic", "--duration", "3"]


def spyker(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*SPYKER, *args], cwd=cwd, capture_output=True, text=True, timeout=200)


def test_version(tmp_path: Path) -> None:
    assert spyker("--version", cwd=tmp_path).stdout == f"spyker {__version__}\n"


def test_run_writes_a_record_and_says_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["run", *QUICK, "--algorithm", "fedavg", "--seed", "5", "--clients", "9", "--out", "here"]) == 0
    run = RunRecord(tmp_path / "here")
    assert run.scenario["algorithm"] == "fedavg"
    assert run.scenario["seed"] == 5
    assert run.scenario["world"]["clients"] == [3, 2, 2, 2]
    assert run.summary is not None
    assert run.summary["finished"]
    assert {stated.fact.kind for stated in run.facts()} == {"run", "evaluation", "update", "round"}


def test_without_out_every_run_gets_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert main(["run", *QUICK]) == 0
    assert sorted(p.name for p in (tmp_path / "runs").iterdir()) == ["stride-quadratic", "stride-quadratic-2"]


def test_the_resolved_scenario_repeats_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert (
        main(
            [
                "run",
                *QUICK,
                "--set",
                "stride.exchange-rounds=3",
                "--set",
                "training.delay-ms=heterogeneous",
                "--out",
                "a",
            ]
        )
        == 0
    )
    assert main(["run", "a/scenario.toml", "--out", "b"]) == 0
    for name in ("scenario.toml", "facts.jsonl", "summary.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_compare_runs_all_in_the_same_world_and_draws(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["compare", *QUICK, "--out", "out"]) == 0
    printed = capsys.readouterr().out
    scenarios = []
    for name in COMPARED:
        scenario = RunRecord(tmp_path / "out" / name).scenario
        assert scenario.pop("algorithm") == name
        scenarios.append(scenario)
    assert all(scenario == scenarios[0] for scenario in scenarios)
    table = (tmp_path / "out" / "table.md").read_text()
    titles = ["Stride", "Spyker", "Sync-Spyker", "FedAsync", "FedAvg", "HierFAVG"]
    assert [row.split(" | ")[0].strip("| ") for row in table.splitlines()[2:]] == titles
    assert all(title in printed for title in titles)
    for picture in ("covered-time.png", "covered-updates.png", "bytes.png"):
        assert f"out/{picture}" in printed
        assert (tmp_path / "out" / picture).read_bytes().startswith(b"\x89PNG")


def test_plot_warns_of_runs_of_other_worlds_and_cuts_no_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    targets = ["--set", "evaluation.targets=[0.1, 0.2, 0.3]"]
    assert main(["run", *QUICK, *targets, "--clients", "200", "--out", "first"]) == 0
    assert main(["run", *QUICK, *targets, "--algorithm", "fedasync", "--out", "second"]) == 0
    texts = {}
    for columns in ("60", "80", None):  # None: a pipe
        monkeypatch.delenv("COLUMNS", raising=False)
        if columns:
            monkeypatch.setenv("COLUMNS", columns)
        capsys.readouterr()
        assert main(["plot", "first", "second", "--out", "both"]) == 0
        texts[columns], err = capsys.readouterr()
        assert err == "spyker: not comparable: the runs differ in world.clients\n"
    assert "Stride, 200 clients" in texts[None]
    assert all("…" not in text for text in texts.values())
    numbers = [set(re.findall(r"[\d.,]+ s|\d,\d+", text)) for text in texts.values()]
    assert numbers[0] == numbers[1] == numbers[2]
    assert len(numbers[2]) >= 4
    assert all(len(line) <= int(columns) for columns, text in texts.items() if columns for line in text.splitlines())


def test_metrics_are_not_mixed_in_a_plot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["run", *QUICK, "--out", "a"]) == 0
    write(tmp_path / "b", started(metric="perplexity", higher_is_better=False), [(0.0, judged(0, 9.0))])
    assert main(["plot", "a", "b", "--out", "both"]) == 2
    assert "covered (a) and perplexity (b). Choose runs of one metric" in capsys.readouterr().err
    assert not (tmp_path / "both").exists()


def test_an_existing_out_is_not_overwritten_unless_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["run", *QUICK, "--seed", "1", "--out", "a"]) == 0
    before = (tmp_path / "a" / "facts.jsonl").read_bytes()
    assert main(["run", *QUICK, "--seed", "2", "--out", "a"]) == 2
    assert main(["compare", *QUICK, "--seed", "2", "--out", "a"]) == 2
    assert (tmp_path / "a" / "facts.jsonl").read_bytes() == before
    assert main(["run", *QUICK, "--seed", "2", "--out", "a", "--overwrite"]) == 0
    assert (tmp_path / "a" / "facts.jsonl").read_bytes() != before


def test_bad_input_does_not_cost_the_record_that_stood_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["run", *QUICK, "--out", "a"]) == 0
    before = (tmp_path / "a" / "facts.jsonl").read_bytes()
    assert main(["run", "--out", "a", "--overwrite", "--task", "digits", "--clients", "100000"]) == 2
    assert (tmp_path / "a" / "facts.jsonl").read_bytes() == before


BAD = {
    "unknown key": ("[world]\nlatancy-ms = 1", "world.latancy-ms", "latency-ms"),
    "negative latency": ('[world]\nregions = ["a"]\nlatency-ms = [[-1.0]]', "world.latency-ms[0][0]", "at least 0"),
    "wrong shape": ("[world]\nlatency-ms = [[1.0, 2.0], [3.0, 4.0]]", "world.latency-ms", "one row per region"),
    "more regions than the matrix": (
        '[world]\nregions = ["a", "b", "c"]\nlatency-ms = [[1.0, 2.0], [3.0, 4.0]]',
        "world.latency-ms",
        "one row per region",
    ),
    "zero clients": ("[world]\nclients = [0, 0, 0, 0]", "world.clients[0]", "at least 1"),
    "NaN": ("[training]\nrate = nan", "training.rate", "finite"),
    "not TOML": ("duration = ", "bad.toml", "valid TOML"),
    "optima for other clients": ('[task]\nname = "quadratic"\noptima = [[1.0]]', "task.optima", "one row per client"),
    "more clients than images": ("[world]\nclients = [9999, 1, 1, 1]", "world.clients", "fewer clients"),
}


@pytest.mark.parametrize("bad", BAD, ids=list(BAD))
@pytest.mark.parametrize("command", ["run", "compare"])
def test_bad_scenarios_exit_with_2_and_write_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    bad: str,
    command: str,
) -> None:
    text, field, remedy = BAD[bad]
    (tmp_path / "bad.toml").write_text(text)
    monkeypatch.chdir(tmp_path)
    assert main([command, "bad.toml"]) == 2
    message = capsys.readouterr().err
    assert field in message
    assert remedy in message
    assert message.count("\n") == 1
    assert [p.name for p in tmp_path.iterdir()] == ["bad.toml"]


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        (["run", "nowhere.toml"], "nowhere.toml"),
        (["run", "--set", "spyker.decay"], "section.key=value"),
        (["run", "--set", "spyker.dekay=1"], "decay"),
        (["run", "--clients", "0"], "--clients"),
        (["run", "--workers", "-1"], "--workers"),
        (["run", "--ray-address", "somewhere:6379"], "Add --engine ray"),
        (["run", "--engine", "ray", "--workers", "0"], "--workers: 0 is not allowed with --engine ray"),
        (["run", "--task", "nowhere:task"], "task.name"),
        (["compare", "--algorithms", "spyker,fedprox"], "fedprox"),
        (["compare", "--algorithms", "spyker,spyker"], "twice"),
        (["plot", "nowhere"], "nowhere"),
    ],
)
def test_bad_arguments_exit_with_2_and_name_what_is_wrong(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    args: list[str],
    complaint: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(args) == 2
    assert complaint in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", ["run", "compare"])
def test_without_ray_its_engine_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "ray", None)  # as if it were not there
    monkeypatch.delitem(sys.modules, "spyker.engines.ray_engine", raising=False)
    assert main([command, "--engine", "ray"]) == 2
    assert "--engine ray: needs ray, which is not installed. Install it: pip install ray" in (capsys.readouterr().err)
    assert not list(tmp_path.iterdir())


def test_a_training_that_runs_away_fails_with_1_and_leaves_a_readable_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steep = ["--set", "training.rate=5", "--set", "training.epochs=20"]
    assert main(["run", *QUICK, "--algorithm", "fedavg", "--duration", "30", *steep, "--out", str(tmp_path / "a")]) == 1
    assert "training.rate" in capsys.readouterr().err
    assert next(RunRecord(tmp_path / "a").facts(Evaluated)).t == 0


def test_ctrl_c_leaves_a_readable_run(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*SPYKER, "run", "--duration", "100000", "--workers", "1", "--out", "a"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    facts = tmp_path / "a" / "facts.jsonl"
    while not (facts.exists() and b'"update"' in facts.read_bytes()):  # it is under way
        assert process.poll() is None
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the workers, too
    out, err = process.communicate(timeout=200)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert "stopped early" in out
    summary = json.loads((tmp_path / "a" / "summary.json").read_text())
    assert not summary["finished"]
    assert summary["updates"] == sum(1 for _ in RunRecord(tmp_path / "a").updates())


def test_ctrl_c_while_workers_start_is_quiet(tmp_path: Path) -> None:
    # The workers import torch for seconds before they could do anything about a signal.
    process = subprocess.Popen(
        [*SPYKER, "run", "--duration", "100000", "--workers", "1", "--out", "a"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    while not (tmp_path / "a" / "facts.jsonl").exists():  # the workers have been started, and nothing has come back
        assert process.poll() is None
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=200)
    assert process.returncode == 130
    assert "Traceback" not in err


def test_a_killed_run_can_be_plotted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["run", *QUICK, "--out", "a"]) == 0
    (tmp_path / "a" / "summary.json").unlink()
    with (tmp_path / "a" / "facts.jsonl").open("a") as file:
        file.write('{"t": 3.1, "kin')
    assert main(["plot", "a", "--out", "plots"]) == 0
    assert len(list((tmp_path / "plots").glob("*.png"))) == 3


def test_the_printed_scenario_is_the_default(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scenario"]) == 0
    text = capsys.readouterr().out
    assert tomllib.loads(text)["spyker"]["activation"] == 1.5
    assert text.count("#") > 30


def test_the_number_of_workers_changes_no_byte(tmp_path: Path) -> None:
    for workers in ("0", "2"):
        assert main(["run", "--duration", "0.5", "--workers", workers, "--out", str(tmp_path / workers)]) == 0
    for name in ("scenario.toml", "facts.jsonl", "summary.json"):
        assert (tmp_path / "0" / name).read_bytes() == (tmp_path / "2" / name).read_bytes()
    assert sum(1 for _ in RunRecord(tmp_path / "2").updates()) >= 100


OWN_TASK = """
import torch
from spyker.tasks.torch_task import TorchTask

def make(clients, seed, training, width):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(2, width), torch.nn.Tanh(), torch.nn.Linear(width, 2))
    def blobs(n):
        y = torch.arange(n) % 2
        return torch.randn(n, 2) + 4.0 * y[:, None], y
    return TorchTask(model, [blobs(16) for _ in range(clients)], blobs(200), training, seed=seed)
"""


def test_a_task_of_ones_own_runs_in_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "with_a_width.py").write_text(OWN_TASK)
    monkeypatch.chdir(tmp_path)
    args = ["--task", "with_a_width:make", "--clients", "8", "--duration", "4", "--set", "training.rate=0.5"]
    assert main(["run", *args, "--set", "task.width=6", "--workers", "1", "--out", "a"]) == 0
    summary = json.loads((tmp_path / "a" / "summary.json").read_text())
    assert summary["parameters"] == 2 * 6 + 6 + 6 * 2 + 2
    assert summary["final"]["mean"] > 0.9
    assert main(["run", *args, "--set", "task.widht=6"]) == 2
    assert "width" in capsys.readouterr().err
