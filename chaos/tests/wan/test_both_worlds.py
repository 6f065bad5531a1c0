"""`make wan` in small: two regions and a task that needs no PyTorch, for a few seconds."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from chaos.wan.compare import observe
from chaos.wan.namespaces import missing_requirement
from chaos.wan.run import BEGIN, END

ROOT = Path(__file__).parents[3]
PROBLEM = missing_requirement()

SCENARIO = """
duration = 4.0
[task]
name = "quadratic"
[world]
regions = ["Paris", "Sydney"]
clients = [3, 3]
mix-ms = 0.5
[training]
delay-ms = [200.0, 210.0, 220.0, 230.0, 240.0, 250.0]
[evaluation]
interval = 0.5
[spyker]
h-intra = 10.0
"""


@pytest.mark.slow  # three deployments, which keep time
@pytest.mark.timeout(600)
@pytest.mark.skipif(PROBLEM is not None, reason=f"no network can be made here: {PROBLEM}")
def test_a_scenario_runs_in_both_worlds_and_what_came_out_is_written_down(tmp_path: Path) -> None:
    (tmp_path / "scenario.toml").write_text(SCENARIO)
    (tmp_path / "images").mkdir()
    document = tmp_path / "doc.md"
    document.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    command = [tmp_path / "scenario.toml", "--algorithms", "spyker", "--out", tmp_path / "out", "--docs", document]
    done = subprocess.run(
        [sys.executable, "-m", "chaos.wan.run", *command],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode in (0, 1), done.stdout
    real = [tmp_path / "out" / "spyker" / "real" / f"record-{i}" for i in range(2)]
    emulated = observe([tmp_path / "out" / "spyker" / "emulated"], 4.0, 0.5)
    seen = observe(real, 4.0, 0.5)
    for i in range(2):
        assert seen.versions[i] == pytest.approx(emulated.versions[i], rel=0.15)
        assert seen.ages[i] == pytest.approx(emulated.ages[i], rel=0.25)
    assert seen.synchronisations > 0
    began = [json.loads((folder / "summary.json").read_text())["began"] for folder in real]
    assert abs(began[0] - began[1]) < 2
    text = document.read_text()
    assert "| version Paris |" in text
    assert "old" not in text
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert (tmp_path / "images" / "wan.png").exists()


def test_a_machine_that_cannot_is_told_why(tmp_path: Path) -> None:
    script = "import os, sys; os.geteuid = lambda: 1000; from chaos.wan.run import main; sys.exit(main([]))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2
    assert "need root" in done.stderr
