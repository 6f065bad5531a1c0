"""The models that ``spyker up`` leaves, and one that it begins from."""

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from deployment import table
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

import spyker
from spyker.api.output_folders import place_for_record
from spyker.cli.main import main
from spyker.config.scenario import dump, from_table
from spyker.net.checkpoint_models import write_checkpoint_models
from spyker.net.checkpoints import Checkpoints
from spyker.net.server_config import layout_numbers
from spyker.records import Evaluated, InitialModelLoaded, RecordError, RunRecord
from spyker.records.merge import merge
from spyker.tasks.registry import resolve, task_spec
from spyker.tasks.served_model import ModelSpec

SCENARIO = resolve(from_table(table("spyker", (2, 2))))
SPYKER = [sys.executable, "-m", "spyker.cli.main"]


def scenario_file(folder: Path, algorithm: str, seconds: float) -> Path:
    path = folder / "scenario.toml"
    path.write_text(dump(resolve(from_table(table(algorithm, (2, 2)) | {"duration": seconds}))), "utf-8")
    return path


def up(folder: Path, algorithm: str, seconds: float, *more: str) -> subprocess.CompletedProcess[str]:
    """Let a deployment with two regions run for a while; its record is in ``record``."""
    path = scenario_file(folder, algorithm, seconds)
    command = [*SPYKER, "up", str(path), "--paced", "--insecure", "--out", str(folder / "record"), *more]
    return subprocess.run(command, capture_output=True, text=True, timeout=200)


def about(path: Path) -> dict[str, str]:
    with safe_open(path, "numpy") as file:
        return dict(file.metadata())


def model_files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*.safetensors")}


@pytest.mark.parametrize(
    ("algorithm", "seconds"), [("stride", 2.0), pytest.param("hierfavg", 6.0, marks=pytest.mark.slow)]
)
def test_a_deployment_leaves_the_models_it_ended_with_as_a_run_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], algorithm: str, seconds: float
) -> None:
    out, kept = tmp_path / "record", tmp_path / "kept"
    done = up(tmp_path, algorithm, seconds, "--keep", str(kept))
    assert done.returncode == 0, done.stderr
    assert f"model: {out}/model.safetensors  ·  export: spyker export {out}" in done.stdout
    summary = RunRecord(out).summary
    assert summary is not None
    parts = [load_file(out / f"models/server-{i}.safetensors")["weights"] for i in (0, 1)]
    assert [part.tolist() for part in parts] == [server["weights"] for server in summary["servers"]]
    assert load_file(out / "model.safetensors")["weights"] == pytest.approx(np.mean(parts, axis=0))
    spyker.run(tmp_path / "scenario.toml", duration=0.5, out=tmp_path / "emulated", progress=False)
    assert model_files(out) == model_files(tmp_path / "emulated"), "a cloud has none"
    for name in model_files(out):
        here, there = about(out / name), about(tmp_path / "emulated" / name)
        assert (here.pop("time"), there.pop("time")) == (repr(summary["time"]), "0.5")
        assert here == there
    assert main(["export", str(out), "--out", str(tmp_path / "all")]) == 0
    assert "server mean of 2\n" in capsys.readouterr().out
    assert torch.load(tmp_path / "all.pt", weights_only=True)["weights"].numpy() == pytest.approx(
        np.mean(parts, axis=0)
    )


def test_who_wants_none_gets_none_and_what_it_begins_from_is_told(tmp_path: Path) -> None:
    given = np.full(8, 0.7, np.float32)
    save_file({"weights": given}, tmp_path / "m.safetensors")
    done = up(tmp_path, "fedasync", 1.0, "--no-model", "--initial-model", str(tmp_path / "m.safetensors"))
    assert done.returncode == 0, done.stderr
    assert not model_files(tmp_path / "record")
    assert "model:" not in done.stdout
    run = RunRecord(tmp_path / "record")
    (begun,) = run.facts(InitialModelLoaded)
    assert begun.fact.model == str(tmp_path / "m.safetensors")
    first = next(run.facts(Evaluated)).fact
    assert first.mean == task_spec(SCENARIO).make().evaluate(given)


def test_a_model_that_does_not_fit_is_refused_before_anything_begins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_file({"weights": np.zeros(3, np.float32)}, tmp_path / "m.safetensors")
    command = ["up", "--task", "quadratic", "--out", str(tmp_path / "record"), "--keep", str(tmp_path / "kept")]
    assert main([*command, "--initial-model", str(tmp_path / "m.safetensors")]) == 2
    assert "m.safetensors has weights in the shape [3]; the task has it in [8]" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["m.safetensors"]


def saved(folder: Path, server: int, value: float) -> Path:
    """A state folder with this model."""
    numbers = {
        "id": server,
        "layout": layout_numbers(ModelSpec.of(task_spec(SCENARIO).make())),
        "server": {"age": 1.0, "version": 1},
    }
    checkpoints = Checkpoints(folder / f"state-{server}", keep=2)
    checkpoints.save(numbers, {"weights": np.full(8, value, np.float32)})
    checkpoints.close()
    return checkpoints.folder


def test_a_state_that_cannot_be_read_takes_no_other_model_with_it(tmp_path: Path) -> None:
    states = {i: saved(tmp_path, i, i) for i in (0, 1)}
    (states[0] / "checkpoint-000001" / "vectors.safetensors").write_bytes(b"torn")
    said = write_checkpoint_models(states, SCENARIO, 2.0, tmp_path / "record")
    assert said[0].startswith("the model of server 0 is missing: ")
    assert "checkpoint-000001 is damaged" in said[0]
    assert said[1:] == ["model.safetensors is the mean of the other 1"]
    assert model_files(tmp_path / "record") == {"model.safetensors", "models/server-1.safetensors"}
    assert load_file(tmp_path / "record" / "model.safetensors")["weights"].tolist() == [1.0] * 8
    assert about(tmp_path / "record" / "model.safetensors")["server"] == "mean of 1 of 2"


def test_a_run_whose_models_are_all_lost_ends_well_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out, kept = tmp_path / "record", tmp_path / "kept"

    def lose(records: list[Path], out: Path) -> None:
        shutil.rmtree(kept / "server-0" / "state")
        merge(records, out)

    monkeypatch.setattr("spyker.net.local_cluster.merge", lose)
    path = scenario_file(tmp_path, "fedasync", 1.0)
    assert main(["up", str(path), "--paced", "--insecure", "--out", str(out), "--keep", str(kept)]) == 0
    said = capsys.readouterr()
    assert f"spyker: the model of server 0 is missing: {kept}/server-0/state holds no checkpoint" in said.err
    assert "model:" not in said.out
    assert not model_files(out)
    assert RunRecord(out).summary is not None


def test_nobody_else_writes_where_the_record_will_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, refused = tmp_path / "record", []

    def look(records: list[Path], out: Path) -> None:
        with pytest.raises(RecordError, match="the run is in progress") as error:
            place_for_record(out, overwrite=True)
        refused.append(error)
        merge(records, out)

    monkeypatch.setattr("spyker.net.local_cluster.merge", look)
    path = scenario_file(tmp_path, "fedasync", 1.0)
    assert main(["up", str(path), "--paced", "--insecure", "--out", str(out)]) == 0
    assert refused
    assert not (out / ".lock").exists()
