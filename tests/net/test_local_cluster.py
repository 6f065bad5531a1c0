"""Whole deployments: every algorithm, from ``spyker up`` to a record that plots read."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from deployment import table, until
from every_algorithm import ALGORITHMS

from spyker.algorithms.builtin import OF_THE_PAPER
from spyker.cli.main import main
from spyker.config.scenario import dump, from_table
from spyker.placement import Topology
from spyker.records import RunRecord
from spyker.tasks.registry import resolve, task_spec

SPYKER = [sys.executable, "-m", "spyker.cli.main"]
HELPERS = str(Path(__file__).parents[1] / "helpers")


def scenario_file(folder: Path, algorithm: str, duration: float) -> Path:
    path = folder / "scenario.toml"
    path.write_text(dump(resolve(from_table(table(algorithm, (2, 2)) | {"duration": duration}))), "utf-8")
    return path


SECONDS = dict.fromkeys(OF_THE_PAPER, 4.0) | dict.fromkeys(["stride", "fedbuff", "fedavg"], 2.0)
SECONDS |= dict.fromkeys(["hierfavg", "hierfavgm"], 8.0)  # all three servers must be there, and may begin seconds apart


@pytest.mark.parametrize(
    "algorithm", [pytest.param(name, marks=() if name == "stride" else pytest.mark.slow) for name in SECONDS]
)
def test_a_full_run_of_each_kind_of_algorithm(tmp_path: Path, algorithm: str) -> None:
    out = tmp_path / "record"
    command = [*SPYKER, "up", str(scenario_file(tmp_path, algorithm, SECONDS[algorithm])), "--paced", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert ALGORITHMS[algorithm].title in done.stdout
    run = RunRecord(out)
    assert run.summary is not None
    assert run.summary["finished"]
    assert (run.start.world, run.start.title, run.start.server) == ("deployed", ALGORITHMS[algorithm].title, None)
    assert min(run.summary["updates_per_client"]) > 0, "everybody took part"
    task = task_spec(resolve(from_table(table(algorithm, (2, 2))))).make()
    assert run.summary["final"]["mean"] > task.evaluate(task.initial()), "and something was learnt"
    updates = list(run.updates())
    assert len(updates) == run.summary["updates"]
    times = [stated.t for stated in run.facts()]
    assert times == sorted(times)
    if ALGORITHMS[algorithm].topology is not Topology.SINGLE:
        assert run.summary["synchronisations"] > 0
        assert {stated.fact.server for stated in updates} == {0, 1}
    assert main(["plot", str(out)]) == 0


def test_a_model_of_pytorch(tmp_path: Path) -> None:
    """Ten clients learn digits, in real time."""
    scenario = tmp_path / "scenario.toml"
    scenario.write_text(
        'duration = 3.0\n[task]\nname = "digits"\npartition = "iid"\n'
        '[world]\nregions = ["Paris"]\nclients = [10]\n[training]\nrate = 0.1\nepochs = 3\n',
        "utf-8",
    )
    out = tmp_path / "record"
    command = [*SPYKER, "up", str(scenario), "--out", str(out), "--keep", str(tmp_path / "kept")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    summary = RunRecord(out).summary
    assert summary is not None
    assert summary["final"]["mean"] > 0.2, "guessing is right in a tenth"
    state = tmp_path / "kept" / "server-0" / "state"
    config = (tmp_path / "kept" / "server-0" / "config.toml").read_text("utf-8")
    assert "# write a checkpoint after this number of updates" in config, "what is kept explains itself"
    assert any(state.glob("checkpoint-*"))
    command = [*SPYKER, "export", str(state), "--out", str(tmp_path / "model")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert f"version {summary['updates']}," in done.stdout, "the last model is there, for anybody to use"


def test_a_client_that_fails_is_named_when_the_run_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([HELPERS, os.environ.get("PYTHONPATH", "")]))
    task = {"name": "failing_task:make", "trivial": True}
    path = tmp_path / "scenario.toml"
    path.write_text(dump(resolve(from_table(table("fedasync", (3,), task=task)))), "utf-8")
    command = [*SPYKER, "up", str(path), "--paced", "--out", str(tmp_path / "record")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 1
    assert "1 of 3 clients failed. client 1: its training failed" in done.stderr
    assert RunRecord(tmp_path / "record").summary is not None, "the others have learnt something"


def test_ctrl_c_stops_everything(tmp_path: Path) -> None:
    out, kept = tmp_path / "record", tmp_path / "kept"
    command = [*SPYKER, "up", str(scenario_file(tmp_path, "spyker", 600.0)), "--out", str(out), "--keep", str(kept)]
    up = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True)
    until(lambda: (facts := kept / "server-1/record/facts.jsonl").exists() and '"update"' in facts.read_text())
    children = [int(pid) for pid in Path(f"/proc/{up.pid}/task/{up.pid}/children").read_text().split()]
    assert len(children) == 4
    up.send_signal(signal.SIGINT)
    assert up.wait(200) == 130
    assert not [pid for pid in children if os.path.exists(f"/proc/{pid}")]
    summary = json.loads((out / "summary.json").read_text())
    assert not summary["finished"]
    assert summary["updates"] > 0


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends processes whose parent is gone")
def test_sigkill_leaves_no_process_behind(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    path = scenario_file(tmp_path, "spyker", 600.0)
    command = [*SPYKER, "up", str(path), "--out", str(tmp_path / "record"), "--keep", str(kept)]
    up = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    until(lambda: (facts := kept / "server-1/record/facts.jsonl").exists() and '"update"' in facts.read_text())
    children = [int(pid) for pid in Path(f"/proc/{up.pid}/task/{up.pid}/children").read_text().split()]
    assert len(children) == 4
    up.kill()
    up.wait()
    until(lambda: not [pid for pid in children if alive(pid)])


def alive(pid: int) -> bool:
    """Whether a process is there and more than an entry that nobody has asked for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
