"""The example with measured latencies, and the notebook."""

import sys
from pathlib import Path

import pytest

import spyker

EXAMPLES = Path(__file__).parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES))

import measured_world  # noqa: E402


@pytest.mark.timeout(400)
def test_both_algorithms_run_in_the_measured_world(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["measured_world.py", "--duration", "1", "--out", str(tmp_path / "out")])
    measured_world.main()
    assert [line.split(":")[0] for line in capsys.readouterr().out.splitlines()] == ["stride", "fedavg"]
    world = spyker.load(tmp_path / "out" / "stride").scenario["world"]
    assert world["regions"] == ["Hongkong", "Paris", "Sydney"]
    assert world["clients"] == [12, 6, 6]
    assert world["latency-ms"][1][2] == pytest.approx(558.94 / 2)


@pytest.mark.timeout(400)
def test_the_notebook_runs_from_top_to_bottom(tmp_path: Path) -> None:
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("pandas")
    notebook = nbformat.read(EXAMPLES / "first_look.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "it is kept without its outputs"
    nbclient.NotebookClient(notebook, timeout=390, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    assert any("image/png" in output.get("data", {}) for output in shown)
    assert any("Reached(time=" in output.get("data", {}).get("text/plain", "") for output in shown)
