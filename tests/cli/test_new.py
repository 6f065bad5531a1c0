"""What people begin from runs as it stands, passes its own tests, and is written as we write."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import spyker
from spyker.cli.main import main

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(spyker.__file__).parents[1])}


def there(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_new_task_and_a_new_algorithm_run_and_pass_their_tests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new", "task", "plane-points"]) == 0
    assert "spyker run --task plane_points:make" in capsys.readouterr().out
    assert main(["new", "algorithm", "relay_race", "--out", "."]) == 0
    assert "spyker run --algorithm relay_race:RelayRace" in capsys.readouterr().out
    assert there(tmp_path) == ["plane_points.py", "relay_race.py", "test_plane_points.py", "test_relay_race.py"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "addopts=", "."]
    done = subprocess.run(command, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stdout
    assert "8 passed" in done.stdout
    both = ["--task", "plane_points:make", "--algorithm", "relay_race:RelayRace", "--set", "relayrace.every=5"]
    command = [sys.executable, "-m", "spyker", "run", *both, "--clients", "8", "--duration", "3", "--json"]
    done = subprocess.run(command, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, timeout=110)
    assert json.loads(done.stdout)["algorithm"] == "relay_race:RelayRace", done.stderr


def test_its_style_is_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ruff", reason="ruff is not installed")
    monkeypatch.chdir(tmp_path)
    for kind in ("task", "algorithm"):
        assert main(["new", kind, f"my_{kind}", "--quiet"]) == 0
    for action in (["check", "--ignore", "D"], ["format", "--check"]):
        command = [sys.executable, "-m", "ruff", *action, "--config", str(ROOT / "pyproject.toml"), "."]
        done = subprocess.run(command, capture_output=True, text=True, timeout=200)
        assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("name", "complaint"),
    [("1st", "no name of a module"), ("class", "no name of a module"), ("json", "my_json"), ("a/b", "no name")],
)
def test_a_bad_name_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, complaint: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new", "task", name]) == 2
    assert complaint in capsys.readouterr().err
    assert not there(tmp_path)


def test_nothing_is_overwritten_unless_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "test_mine.py").write_text("mine")
    assert main(["new", "task", "mine", "--out", str(tmp_path)]) == 2
    assert "test_mine.py exist already" in capsys.readouterr().err
    assert there(tmp_path) == ["test_mine.py"]
    assert main(["new", "task", "mine", "--out", str(tmp_path), "--overwrite"]) == 0
    assert there(tmp_path) == ["mine.py", "test_mine.py"]


def test_examples_are_listed_with_what_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["examples", "--json"]) == 0
    found = {each["example"]: each["about"] for each in json.loads(capsys.readouterr().out)}
    assert set(found) == {path.name for path in (ROOT / "examples").iterdir() if path.name[0] not in "._"}
    assert found["own_task.py"].startswith("A task of one's own: two spirals")
    assert all(len(about) > 10 for about in found.values()), "say in a first sentence what it is"


def test_examples_are_copied_as_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["examples", "copy", "demo.toml", "deploy", "--out", str(tmp_path / "mine")]) == 0
    assert there(tmp_path / "mine") == ["demo.toml", "deploy"]
    assert (tmp_path / "mine/demo.toml").read_bytes() == (ROOT / "examples/demo.toml").read_bytes()
    assert (tmp_path / "mine/deploy/paris.toml").exists()
    capsys.readouterr()
    assert main(["examples", "copy", "--out", str(tmp_path / "mine")]) == 2
    assert "demo.toml" in capsys.readouterr().err
    assert there(tmp_path / "mine") == ["demo.toml", "deploy"]
    assert main(["examples", "copy", "dmo.toml"]) == 2
    assert "Did you mean 'demo.toml'?" in capsys.readouterr().err
